// Two states as one tree of marks: what the State panel draws. Pure.
//
// A node is {key, mark, value, before, children, counts}; mark is "same", "added", "removed" or "changed".

// Escapes a key as a JSON pointer token.
export const pointerTo = (key) => `/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;

const isBranch = (value) => value !== null && typeof value === "object";
const same = (a, b) => a === b || (typeof a === "number" && typeof b === "number" && Object.is(a, b));

export function childrenOf(value) {
	if (Array.isArray(value)) return value.map((item, place) => [String(place), item]);
	return isBranch(value) ? Object.entries(value) : [];
}

export function diffTree(before, after, key = "") {
	if (before === after) return { key, mark: "same", value: after, lazy: isBranch(after) };
	if (before === undefined) return { key, mark: "added", value: after, lazy: isBranch(after) };
	if (after === undefined) return { key, mark: "removed", value: before, lazy: isBranch(before) };
	if (!isBranch(before) || !isBranch(after) || Array.isArray(before) !== Array.isArray(after)) {
		return { key, mark: same(before, after) ? "same" : "changed", value: after, before };
	}
	const children = [];
	let touched = false;
	const names = new Set([...Object.keys(after), ...Object.keys(before)]);
	const ordered = Array.isArray(after) ? [...names].sort((a, b) => a - b) : names;
	for (const name of ordered) {
		const own = (value) => (Object.hasOwn(value, name) ? value[name] : undefined);
		const child = diffTree(own(before), own(after), name);
		touched ||= child.mark !== "same" || child.touched;
		children.push(child);
	}
	return touched ? { key, mark: "same", value: after, children, touched } : { key, mark: "same", value: after, lazy: true };
}

export function counts(node, total = { added: 0, changed: 0, removed: 0 }) {
	if (node.mark !== "same") total[node.mark] += 1;
	for (const child of node.children ?? []) counts(child, total);
	return total;
}

// The children of a node that was not compared because it is the same, added or removed as a whole.
export function unfold(node) {
	return node.children ?? childrenOf(node.value).map(([key, value]) => ({ key, mark: node.mark, value, lazy: isBranch(value) }));
}
