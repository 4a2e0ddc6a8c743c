// Sessions as rows of a table. A sub-session is indented under its parent if that is on the page.

import { h, put, redraw } from "../dom.js";
import { go, sessionLink } from "../router.js";
import { mark } from "../status.js";
import { ago, brief, inFull, money, shown } from "../text.js";

const COLUMNS = [["Status", "c-st"], ["Session", ""], ["Waits for you", "c-w"], ["Agent", "c-a"], ["User", "c-u hide-s"], ["Tags", "c-t hide-m"], ["Steps", "c-n r hide-m"], ["Tokens", "c-n r hide-s"], ["Cost", "c-n r hide-m"], ["Last active", "c-g r"]];
const SKELETON_ROWS = 12;
const looks = (kind) => kind.replace(/c-\w+ ?/, "");

export class SessionTable {
	#body = h("tbody");
	#rows = [];
	chosen = 0;

	constructor() {
		this.node = h("table.sessions", { label: "Sessions" },
			h("colgroup", COLUMNS.map(([, kind]) => h("col", { class: kind.replace(" r", "") }))),
			h("thead", h("tr", COLUMNS.map(([name, kind]) => h("th", { scope: "col", class: looks(kind) }, name)))), this.#body);
		this.#body.addEventListener("keydown", (event) => { if (event.key === "Enter") this.open(); });
	}

	get selected() {
		return this.#rows[this.chosen];
	}

	open() {
		if (this.selected) go(sessionLink(this.selected.session_id));
	}

	set(rows) {
		this.#rows = rows;
		this.chosen = Math.min(this.chosen, Math.max(0, rows.length - 1));
		const known = new Set(rows.map((each) => each.session_id));
		this.#body.removeAttribute("aria-busy");
		redraw(this.#body, rows.map((each, at) => row(each, { isChosen: at === this.chosen, isUnder: known.has(each.parent_session_id) })));
	}

	showSkeleton() {
		put(this.#body, Array.from({ length: SKELETON_ROWS }, () => h("tr", COLUMNS.map(([, kind], at) => h("td", { class: looks(kind) }, at < 4 && h("span", { class: `sk ${at === 1 ? "m" : "s"}` }))))));
		this.#body.setAttribute("aria-busy", "true");
	}

	move(by) {
		this.chosen = Math.min(this.#rows.length - 1, Math.max(0, this.chosen + by));
		[...this.#body.rows].forEach((node, at) => { node.setAttribute("aria-selected", String(at === this.chosen)); node.tabIndex = at === this.chosen ? 0 : -1; });
		this.#body.rows[this.chosen]?.focus();
	}
}

function row(each, { isChosen, isUnder }) {
	const resumed = each.resume_count === 1 ? "resumed once" : `resumed ${each.resume_count} times`;
	const note = each.error ?? (each.resume_count ? resumed : "");
	const asks = Object.values(each.pending_client_tool_calls ?? {}).filter((pending) => !pending.submitted_at);
	const tokens = each.usage?.tokens?.total;
	return h("tr", { "aria-selected": String(isChosen), tabindex: isChosen ? "0" : "-1", onclick: () => go(sessionLink(each.session_id)), "data-id": each.session_id, "data-key": each.session_id },
		h("td", mark(each.status)),
		h("td.id", h(isUnder ? "span.child" : "span", h("a", { href: sessionLink(each.session_id), tabindex: "-1", title: each.session_id }, shown(each.metadata?.title ?? each.session_id))), note && h("span", { class: each.error ? "note red" : "note" }, shown(note))),
		h("td.waits", asks.slice(0, 1).map((pending) => h("span.pill.wait.row.mono", shown(pending.tool_name))), asks.length > 1 && h("span.dim", ` +${asks.length - 1}`)),
		h("td", shown(each.agent_type)),
		h("td.hide-s", shown(each.user_id ?? "")),
		h("td.hide-m", each.tags.map((tag) => h("span.tag", shown(tag)))),
		h("td.r.hide-m", each.step_count),
		h("td.r.hide-s", tokens === undefined ? "" : brief(tokens)),
		h("td.r.hide-m", money(each.usage?.cost ?? each.usage?.custom?.cost)),
		h("td.r.ago", { title: inFull(each.updated_at) }, ago(each.updated_at)));
}

// Sub-sessions whose parent is on the page come right after it; everything else keeps its position.
export function underParents(items) {
	const below = Map.groupBy(items, (each) => each.parent_session_id ?? "");
	const known = new Set(items.map((each) => each.session_id));
	const withChildren = (each) => [each, ...(below.get(each.session_id) ?? []).flatMap(withChildren)];
	return items.filter((each) => !known.has(each.parent_session_id)).flatMap(withChildren);
}
