// The list of sessions: filters in the address, pages by cursor, rows that change in place.

import { get, query } from "../api.js";
import { after, button, copy, h, icon, put, redraw } from "../dom.js";
import { useKeys } from "../keys.js";
import { blank, broken } from "../parts/blank.js";
import { startSession } from "../parts/new_session.js";
import { countFrom, drawChips, filtersOf, isFiltered, listAddress, onlyRoots } from "../parts/session_filters.js";
import { SessionTable, underParents } from "../parts/session_table.js";
import { vitals } from "../parts/vitals.js";
import { amend, go, here, link } from "../router.js";
import { json, number } from "../text.js";

const PAGE = 50;
const REFRESH_EVERY = 4000;
const FIRST_REQUEST = "curl -X POST localhost:8000/execute \\\n  -H 'content-type: application/json' \\\n  -d '{\"agent_type\": \"researcher\", \"message\": \"Hello\"}'";

export const sessions = (view, context) => new SessionsView(view, context);

class SessionsView {
	#search;
	#stats;
	#rows = [];
	#next = null;
	#newer = 0;
	#matching;
	#stopped = false;
	#table = new SessionTable();
	#total = h("span.dim");
	#chips = h("div.chips.main", { role: "group", label: "Filters" });
	#results = h("div.results");
	#pager = h("div.pager");
	#field = h("input.field", { type: "search", placeholder: "Session id", label: "Filter by session id" });
	#typed = after(200, () => this.#filterById());
	#drawStats = () => { drawChips(this.#chips, this.#search, this.#stats.value?.by_status); this.#drawTotal(); };

	constructor(view, { search, stats }) {
		this.#search = search;
		this.#stats = stats;
		this.#field.value = search.get("q") ?? "";
		this.#field.addEventListener("input", this.#typed);
		this.health = vitals(stats);
		document.title = "Sessions · helix";
		put(view, h("div.page",
			h("div.title", h("h1", "Sessions"), this.#total, h("span.grow"), h("label.search", icon("i-search"), this.#field, h("kbd", { "aria-hidden": "true" }, "/")), button("New", () => this.#start(), { kind: "primary", glyph: "i-plus", key: "n" })),
			this.health.node, this.#chips, this.#results));
		this.release = this.#useKeys();
		stats.listeners.add(this.#drawStats);
		this.timer = setInterval(() => this.#refresh(), REFRESH_EVERY);
		this.#drawStats();
		this.#load();
	}

	moved(_, search) {
		this.#table.chosen = 0;
		this.#field.value = search.get("q") ?? "";
		this.#show(search);
	}

	stop() {
		this.#stopped = true;
		clearInterval(this.timer);
		this.#typed.stop();
		this.release();
		this.#stats.listeners.delete(this.#drawStats);
		this.health.stop();
	}

	#useKeys() {
		return useKeys({
			j: () => this.#table.move(1), k: () => this.#table.move(-1), ArrowDown: () => this.#table.move(1), ArrowUp: () => this.#table.move(-1),
			Enter: () => this.#table.open(), n: () => this.#start(), "/": () => this.#field.focus(),
			c: () => copy(json(this.#table.selected, 2)), l: () => copy(location.href, "Link"),
		});
	}

	#start() {
		startSession(this.#search.get("agent_type") ?? "");
	}

	#filterById() {
		amend(listAddress(this.#search, { q: this.#field.value.trim() }));
		this.#show(here().search);
	}

	#show(search) {
		this.#search = search;
		this.#rows = [];
		this.#matching = undefined;
		this.#drawStats();
		this.#load();
	}

	// The filters have changed since the request: ignore the response.
	#isLate(asked) {
		return this.#stopped || this.#search !== asked;
	}

	#ask({ count = false } = {}) {
		const roots = onlyRoots(this.#search) ? "&parent_session_id=" : "";
		return get(`sessions${query({ ...filtersOf(this.#search), limit: PAGE, cursor: this.#search.get("cursor"), include: "usage", count })}${roots}`);
	}

	// Counting many sessions may be slow: only once per list, and only if the overall figures do not have it.
	#mustCount(search) {
		return countFrom(this.#stats.value?.by_status, search) === undefined && (isFiltered(search) || this.#stats.isRefused);
	}

	async #load() {
		const asked = this.#search;
		const timer = setTimeout(() => { if (!this.#rows.length) { this.#table.showSkeleton(); put(this.#results, this.#table.node); } }, 200);
		try {
			const page = await this.#ask({ count: this.#mustCount(asked) });
			if (this.#isLate(asked)) return;
			this.#rows = underParents(page.items);
			this.#next = page.next_cursor;
			this.#newer = 0;
			this.#matching = page.total;
			this.#draw();
		} catch (error) {
			if (!this.#isLate(asked)) put(this.#results, broken(error, () => this.#load()));
		} finally { clearTimeout(timer); }
	}

	#draw() {
		this.#drawTotal();
		if (!this.#rows.length) return put(this.#results, this.#nothing());
		this.#table.set(this.#rows);
		this.#drawPager();
		return put(this.#results, this.#table.node, this.#pager);
	}

	#drawTotal() {
		const many = countFrom(this.#stats.value?.by_status, this.#search) ?? this.#matching;
		this.#total.textContent = many === undefined ? "" : number(many);
	}

	#nothing() {
		if (![...this.#search.keys()].length) return blank("No sessions yet", "Sessions appear here as soon as an agent runs on this backend.", { glyph: "i-rows", code: FIRST_REQUEST, actions: [button("New conversation", () => this.#start(), { kind: "primary" })] });
		const filters = [...this.#search].filter(([name]) => name !== "cursor").map(([name, value]) => `${name.replace("_", " ")} ${value}`).join(", ");
		return blank("No session matches", `Filters: ${filters}.`, { glyph: "i-search", actions: [button("Clear filters", () => go(link([])), { kind: "primary" })] });
	}

	#drawPager() {
		const isFirst = !this.#search.get("cursor");
		const older = () => { const next = new URLSearchParams(this.#search); next.set("cursor", this.#next); go(link([], next)); };
		redraw(this.#pager,
			h("span.hint", [["j k", "move"], ["Enter", "open"], ["/", "filter"]].map(([key, what]) => h("span", h("kbd", key), what))),
			h("span.grow"),
			this.#newer ? button(`${this.#newer} newer`, () => (isFirst ? this.#load() : go(listAddress(this.#search)))) : null,
			!isFirst && button("Newest", () => go(listAddress(this.#search))),
			this.#next && button("Older", older));
	}

	// Rows on the page change in place; they move only when a person reloads or requests newer ones.
	async #refresh() {
		if (document.hidden || this.#stopped || !this.#rows.length) return;
		const asked = this.#search;
		try {
			const page = await this.#ask();
			if (this.#isLate(asked)) return;
			const fresh = new Map(page.items.map((each) => [each.session_id, each]));
			const known = new Set(this.#rows.map((each) => each.session_id));
			this.#newer = page.items.filter((each) => !known.has(each.session_id)).length;
			this.#rows = this.#rows.map((each) => fresh.get(each.session_id) ?? each);
			this.#table.set(this.#rows);
			this.#drawPager();
		} catch { /* the top bar says that the server is away; the rows stay as they were */ }
	}
}
