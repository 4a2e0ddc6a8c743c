// The filters of the session list: stored in the address, shown and changed by chips.

import { h, icon, redraw } from "../dom.js";
import { go, link } from "../router.js";
import { GROUPS, glyph, word } from "../status.js";
import { number, shown } from "../text.js";
import { askFilter } from "./filter.js";

const BY_VALUE = [["agent_type", "Agent"], ["user_id", "User"], ["tag", "Tag"]];

// The query for the server. An empty parent means sessions without one, so it is added by hand.
export function filtersOf(search) {
	return { status: search.getAll("status"), agent_type: search.get("agent_type"), user_id: search.get("user_id"), tag: search.getAll("tag"), q: search.get("q") };
}

export const onlyRoots = (search) => Boolean(search.get("roots"));
export const isFiltered = (search) => onlyRoots(search) || ["status", "q", ...BY_VALUE.map(([name]) => name)].some((name) => search.get(name));

// The number of sessions according to the overall figures; undefined if only the list itself can tell.
export function countFrom(byStatus, search) {
	const isByStatus = [...search].every(([name, value]) => name === "status" || name === "cursor" || !value);
	if (!byStatus || !isByStatus) return undefined;
	const wanted = search.getAll("status");
	return Object.entries(byStatus).reduce((sum, [status, many]) => sum + (wanted.length === 0 || wanted.includes(status) ? many : 0), 0);
}

// The address of the first page of the list with other filters.
export function listAddress(search, changes = {}) {
	const next = new URLSearchParams(search);
	for (const [name, value] of Object.entries(changes)) {
		next.delete(name);
		for (const each of [value].flat()) if (each) next.append(name, each);
	}
	next.delete("cursor");
	return link([], next);
}

export function drawChips(node, search, byStatus) {
	const roots = onlyRoots(search);
	// The figures count all sessions: combined with another filter they would be wrong.
	const counts = countFrom(byStatus, new URLSearchParams([...search].filter(([name]) => name !== "status"))) === undefined ? null : byStatus;
	redraw(node,
		GROUPS.map(([name, statuses]) => statusChip(search, name, statuses, counts)),
		h("span.sep"),
		BY_VALUE.flatMap(([name, label]) => search.getAll(name).map((value) => valueChip(search, name, label, value))),
		h("button", { type: "button", class: roots ? "chip" : "chip on", onclick: () => go(listAddress(search, { roots: roots ? "" : "1" })) }, roots ? "Sub-agents hidden" : "Sub-agents shown"),
		h("button.chip.add", { type: "button", onclick: () => addFilter(search) }, icon("i-plus"), "Agent, user, tag"));
}

function statusChip(search, name, statuses, counts) {
	const chosen = search.getAll("status");
	const pressed = statuses.some((status) => chosen.includes(status));
	const rest = pressed ? chosen.filter((status) => !statuses.includes(status)) : [...chosen, ...statuses];
	const many = counts && statuses.reduce((sum, status) => sum + (counts[status] ?? 0), 0);
	return h("button.chip", { type: "button", "aria-pressed": String(pressed), onclick: () => go(listAddress(search, { status: rest })) },
		glyph(statuses[0]), name === "waiting" ? "Waiting" : word(statuses[0]), counts && h("span.num", number(many)));
}

function valueChip(search, name, label, value) {
	const rest = search.getAll(name).filter((each) => each !== value);
	return h("button.chip", { type: "button", label: `${label} ${value}, remove`, "aria-pressed": "true", onclick: () => go(listAddress(search, { [name]: rest })) }, label, h("b", shown(value)), icon("i-x"));
}

async function addFilter(search) {
	const [name, value] = (await askFilter()) ?? [];
	if (name) go(listAddress(search, { [name]: name === "tag" ? [...search.getAll("tag"), value] : value }));
}
