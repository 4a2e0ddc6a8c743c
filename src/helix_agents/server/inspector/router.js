// Addresses. Everything after `#` is ours: `#/`, `#/waiting`, `#/health`, `#/s/<id>/<tab>`, each with a query.

export function here() {
	const [route, search = ""] = location.hash.slice(1).split("?");
	const parts = route.split("/").filter(Boolean).map(decodeURIComponent);
	return { parts, search: new URLSearchParams(search) };
}

export function link(parts, search) {
	const text = search ? new URLSearchParams(search).toString() : "";
	return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export const sessionLink = (id, tab) => link(tab ? ["s", id, tab] : ["s", id]);

export function go(address) {
	location.hash = address;
}

// Changes the address without a new history entry: for filters while typing, or the selected checkpoint.
export function amend(address) {
	history.replaceState(null, "", address);
}
