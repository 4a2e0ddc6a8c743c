// The list of sessions: filters in the address, pages by cursor, rows that change in place.

import { get, query } from "../api.js";
import { after, button, copy, h, icon, put, redraw } from "../dom.js";
import { useKeys } from "../keys.js";
import { blank, broken } from "../parts/blank.js";
import { askFilter } from "../parts/filter.js";
import { vitals } from "../parts/vitals.js";
import { amend, go, link, sessionLink } from "../router.js";
import { GROUPS, glyph, mark, word } from "../status.js";
import { ago, brief, inFull, json, money, number, shown } from "../text.js";

const PAGE = 50;
const REFRESH_EVERY = 4000;
const COLUMNS = [["Status", "c-st"], ["Session", ""], ["Waits for you", "c-w"], ["Agent", "c-a"], ["User", "c-u hide-s"], ["Tags", "c-t hide-m"], ["Steps", "c-n r hide-m"], ["Tokens", "c-n r hide-s"], ["Cost", "c-n r hide-m"], ["Last active", "c-g r"]];

export function sessions(view, { search, stats }) {
	const state = { search, cursors: [], rows: [], chosen: 0, next: null, newer: 0, stopped: false };
	const body = h("tbody");
	const total = h("span.dim");
	const chips = h("div.chips.main", { role: "group", label: "Filters" });
	const place = h("div.results");
	const pager = h("div.pager");
	const field = h("input.field", { type: "search", placeholder: "Session id", value: search.get("q") ?? "", label: "Filter by session id" });
	const table = h("table.sessions", { label: "Sessions" },
		h("colgroup", COLUMNS.map(([, kind]) => h("col", { class: kind.replace(" r", "") }))),
		h("thead", h("tr", COLUMNS.map(([name, kind]) => h("th", { scope: "col", class: kind.replace(/c-\w+ ?/, "") }, name)))), body);
	const health = vitals(stats);
	document.title = "Sessions · helix";
	put(view, h("div.page",
		h("div.title", h("h1", "Sessions"), total, h("span.grow"), h("label.search", icon("i-search"), field, h("kbd", { "aria-hidden": "true" }, "/"))),
		health.node, chips, place));

	const filters = () => ({ status: state.search.getAll("status"), agent_type: state.search.get("agent_type"), user_id: state.search.get("user_id"), tag: state.search.getAll("tag"), q: state.search.get("q"), parent_session_id: state.search.get("roots") ? "" : undefined });
	const address = (more) => {
		const next = new URLSearchParams(state.search);
		for (const [name, value] of Object.entries(more)) { next.delete(name); for (const each of [value].flat()) if (each) next.append(name, each); }
		next.delete("cursor");
		return link([], next);
	};
	const ask = (cursor, limit = PAGE) => {
		const wanted = filters();
		const roots = wanted.parent_session_id === "" ? "&parent_session_id=" : "";
		return get(`sessions${query({ ...wanted, limit, cursor, include: "usage", count: "false" })}${roots}`);
	};

	// An answer that comes after somebody chose other filters is about a list that nobody looks at any more.
	const isLate = (asked) => state.stopped || state.search !== asked;

	async function load() {
		const asked = state.search;
		const timer = setTimeout(() => { if (!state.rows.length) showSkeleton(); }, 200);
		try {
			const page = await ask(asked.get("cursor"));
			if (isLate(asked)) return;
			state.rows = underParents(page.items);
			state.next = page.next_cursor;
			state.newer = 0;
			state.chosen = Math.min(state.chosen, Math.max(0, state.rows.length - 1));
			draw();
		} catch (error) {
			if (!isLate(asked)) put(place, broken(error, load));
		} finally { clearTimeout(timer); }
	}

	function showSkeleton() {
		put(body, Array.from({ length: 12 }, () => h("tr", COLUMNS.map(([, kind], at) => h("td", { class: kind.replace(/c-\w+ ?/, "") }, at < 4 && h("span", { class: `sk ${at === 1 ? "m" : "s"}` }))))));
		body.setAttribute("aria-busy", "true");
		put(place, table);
	}

	function draw() {
		body.removeAttribute("aria-busy");
		if (!state.rows.length) return put(place, nothing());
		put(body, state.rows.map((each, at) => row(each, at)));
		drawPager();
		put(place, table, pager);
		return undefined;
	}

	function nothing() {
		const filtered = [...state.search.keys()].length > 0;
		if (!filtered) return blank("No sessions yet", "Sessions appear here as soon as an agent runs on this backend.", { glyph: "i-rows", code: "curl -X POST localhost:8000/execute \\\n  -H 'content-type: application/json' \\\n  -d '{\"agent_type\": \"researcher\", \"message\": \"Hello\"}'" });
		const told = [...state.search].filter(([name]) => name !== "cursor").map(([name, value]) => `${name.replace("_", " ")} ${value}`).join(", ");
		return blank("No session matches", `Filters: ${told}.`, { glyph: "i-search", actions: [button("Clear filters", () => go(link([])), { kind: "primary" })] });
	}

	function row(each, at) {
		const title = each.metadata?.title;
		const note = each.error ?? (each.resume_count ? (each.resume_count === 1 ? "resumed once" : `resumed ${each.resume_count} times`) : "");
		const asks = Object.values(each.pending_client_tool_calls ?? {}).filter((pending) => !pending.submitted_at);
		const tokens = each.usage?.tokens?.total;
		const cost = each.usage?.cost ?? each.usage?.custom?.cost;
		const node = h("tr", { "aria-selected": String(at === state.chosen), tabindex: at === state.chosen ? "0" : "-1", onclick: () => go(sessionLink(each.session_id)), "data-id": each.session_id, "data-key": each.session_id },
			h("td", mark(each.status)),
			h("td.id", h(isUnder(each, at) ? "span.child" : "span", h("a", { href: sessionLink(each.session_id), tabindex: "-1", title: each.session_id }, shown(title ?? each.session_id))), note && h("span", { class: each.error ? "note red" : "note" }, shown(note))),
			h("td.waits", asks.slice(0, 1).map((pending) => h("span.pill.wait.row.mono", shown(pending.tool_name))), asks.length > 1 && h("span.dim", ` +${asks.length - 1}`)),
			h("td", shown(each.agent_type)),
			h("td.hide-s", shown(each.user_id ?? "")),
			h("td.hide-m", each.tags.map((tag) => h("span.tag", shown(tag)))),
			h("td.r.hide-m", each.step_count),
			h("td.r.hide-s", tokens === undefined ? "" : brief(tokens)),
			h("td.r.hide-m", money(cost)),
			h("td.r.ago", { title: inFull(each.updated_at) }, ago(each.updated_at)));
		return node;
	}

	// A row hangs under the one above if that is its parent or another child of it.
	const isUnder = (each, at) => {
		const above = state.rows[at - 1];
		return Boolean(each.parent_session_id) && (above?.session_id === each.parent_session_id || above?.parent_session_id === each.parent_session_id);
	};

	function drawPager() {
		const isFirst = !state.search.get("cursor");
		redraw(pager,
			h("span.hint", [["j k", "move"], ["Enter", "open"], ["/", "filter"]].map(([key, what]) => h("span", h("kbd", key), what))),
			h("span.grow"),
			state.newer ? button(`${state.newer} newer`, () => (isFirst ? load() : go(address({})))) : null,
			!isFirst && button("Newest", () => go(address({}))),
			state.next && button("Older", () => { const next = new URLSearchParams(state.search); next.set("cursor", state.next); go(link([], next)); }));
	}

	function drawChips() {
		const chosen = state.search.getAll("status");
		const by = stats.value?.by_status ?? {};
		redraw(chips,
			GROUPS.map(([name, statuses]) => {
				const pressed = statuses.some((status) => chosen.includes(status));
				const many = statuses.reduce((sum, status) => sum + (by[status] ?? 0), 0);
				const rest = pressed ? chosen.filter((status) => !statuses.includes(status)) : [...chosen, ...statuses];
				return h("button.chip", { type: "button", "aria-pressed": String(pressed), onclick: () => go(address({ status: rest })) }, glyph(statuses[0]), name === "waiting" ? "Waiting" : word(statuses[0]), stats.value ? h("span.num", number(many)) : null);
			}),
			h("span.sep"),
			[["agent_type", "Agent"], ["user_id", "User"], ["tag", "Tag"]].flatMap(([name, label]) => state.search.getAll(name).map((value) =>
				h("button.chip", { type: "button", label: `${label} ${value}, remove`, "aria-pressed": "true", onclick: () => go(address({ [name]: state.search.getAll(name).filter((each) => each !== value) })) }, label, h("b", shown(value)), icon("i-x")))),
			h("button.chip", { type: "button", "aria-pressed": String(!state.search.get("roots")), onclick: () => go(address({ roots: state.search.get("roots") ? "" : "1" })) }, "Sub-agents shown"),
			h("button.chip.add", { type: "button", onclick: addFilter }, icon("i-plus"), "Agent, user, tag"));
	}

	async function addFilter() {
		const [name, value] = (await askFilter()) ?? [];
		if (name) go(address({ [name]: name === "tag" ? [...state.search.getAll("tag"), value] : value }));
	}

	// Rows on the page change in place; they move only when somebody reloads or asks for what is newer.
	async function refresh() {
		if (document.hidden || state.stopped || !state.rows.length) return;
		const asked = state.search;
		try {
			const page = await ask(asked.get("cursor"));
			if (isLate(asked)) return;
			const fresh = new Map(page.items.map((each) => [each.session_id, each]));
			const known = new Set(state.rows.map((each) => each.session_id));
			state.newer = page.items.filter((each) => !known.has(each.session_id)).length;
			state.rows = state.rows.map((each) => fresh.get(each.session_id) ?? each);
			redraw(body, state.rows.map((each, at) => row(each, at)));
			drawPager();
		} catch { /* the top bar says that the server is away; the rows stay as they were */ }
	}

	function move(by) {
		state.chosen = Math.min(state.rows.length - 1, Math.max(0, state.chosen + by));
		[...body.rows].forEach((node, at) => { node.setAttribute("aria-selected", String(at === state.chosen)); node.tabIndex = at === state.chosen ? 0 : -1; });
		body.rows[state.chosen]?.focus();
	}

	const drawStats = () => { drawChips(); const by = stats.value?.by_status; total.textContent = by ? number(Object.values(by).reduce((a, b) => a + b, 0)) : ""; };
	const typed = after(200, () => { amend(address({ q: field.value.trim() })); state.search = new URLSearchParams(location.hash.split("?")[1] ?? ""); state.rows = []; load(); });
	field.addEventListener("input", typed);
	const chosenId = () => state.rows[state.chosen]?.session_id;
	const release = useKeys({
		j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
		Enter: () => { if (chosenId()) go(sessionLink(chosenId())); },
		"/": () => field.focus(), c: () => copy(json(state.rows[state.chosen], 2)), l: () => copy(location.href, "Link"),
	});
	body.addEventListener("keydown", (event) => { if (event.key === "Enter") go(sessionLink(chosenId())); });
	stats.listeners.add(drawStats);
	const timer = setInterval(refresh, REFRESH_EVERY);
	drawStats();
	load();

	return {
		moved(_, search) { state.search = search; state.rows = []; state.chosen = 0; field.value = search.get("q") ?? ""; drawStats(); load(); },
		stop() { state.stopped = true; clearInterval(timer); typed.stop(); release(); stats.listeners.delete(drawStats); health.stop(); },
	};
}

// Sub-sessions whose parent is on the page come right after it; everything else keeps its place.
function underParents(items) {
	const below = Map.groupBy(items, (each) => each.parent_session_id ?? "");
	const known = new Set(items.map((each) => each.session_id));
	const withChildren = (each) => [each, ...(below.get(each.session_id) ?? []).flatMap(withChildren)];
	return items.filter((each) => !known.has(each.parent_session_id)).flatMap(withChildren);
}
