// The header of a session: title, status, facts, and what can be done to it.

import { button, copy, h, icon, redraw } from "../dom.js";
import { link, sessionLink } from "../router.js";
import { isLive, isOver, pill, waits } from "../status.js";
import { brief, inFull, json, money, plural, shown, when } from "../text.js";

// `toQuestion` scrolls to the first pending question.
export function drawHead(node, store, { actions, toQuestion }) {
	// An open menu is not redrawn until it is closed.
	if (!store.session || node.querySelector(".menu[open]")) return;
	redraw(node, h("div.head-1", title(store, toQuestion), h("div.actions", buttons(store.session, actions))), h("dl.facts", facts(store)));
}

function title({ id, session, waiting }, toQuestion) {
	const many = waiting.length;
	const copyId = button("", () => copy(id, "Session id"), { kind: "quiet icon", label: "Copy session id", title: "Copy" });
	copyId.append(icon("i-copy"));
	const questions = h("a.pill.wait", { href: location.hash, onclick: (event) => { event.preventDefault(); toQuestion(); } }, icon("s-wait", "g wait"), `${plural(many, "question")} waiting`);
	return [
		h("a.crumb", { href: link([]) }, "Sessions /"), h("h1", { title: id }, shown(session.metadata?.title ?? id)), copyId,
		!(many && waits(session.status)) && pill(session.status), many > 0 && questions,
	];
}

function buttons(session, actions) {
	const { status } = session;
	const canResume = !isOver(status) || session.failure_reason;
	return [
		isLive(status) || waits(status) ? button("Interrupt", actions.interrupt, { glyph: "i-stop" }) : canResume && button("Resume", actions.resume, { kind: "primary", glyph: "i-next" }),
		button("Fork", () => actions.fork(), { glyph: "i-fork" }), menu(session, actions),
	];
}

function facts(store) {
	const { session, runs, usage } = store;
	const run = runs.at(-1);
	const fact = (name, ...value) => h("div", h("dt", name), h("dd", value));
	const to = (id) => h("a", { href: sessionLink(id) }, shown(id));
	return [
		fact("Agent", h("a", { href: link([], { agent_type: session.agent_type }) }, shown(session.agent_type))),
		session.user_id && fact("User", h("a", { href: link([], { user_id: session.user_id }) }, shown(session.user_id))),
		session.parent_session_id && fact("Parent", to(session.parent_session_id)),
		session.forked_from && fact("Forked from", to(session.forked_from.session_id), ` after ${plural(session.forked_from.message_count, "message")}`),
		run && fact("Turn", String(store.turnOf(run.run_id) || 1), run.worker ? [" on ", shown(run.worker)] : ""),
		fact("Step", String(session.step_count)),
		usage?.tokens.total > 0 && fact("Tokens", brief(usage.tokens.total)),
		usage?.custom.cost > 0 && fact("Cost", money(usage.custom.cost)),
		fact("Began", h("time", { title: inFull(session.created_at) }, when(session.created_at))),
		session.tags.length > 0 && fact("Tags", session.tags.map((tag) => h("a.tag", { href: link([], { tag }) }, shown(tag)))),
	];
}

function menu(session, actions) {
	const { status } = session;
	const item = (label, run, { why, danger } = {}) => h("button", { type: "button", role: "menuitem", class: danger ? "danger" : "", disabled: Boolean(why), onclick: () => { node.open = false; run(); } }, label, why && h("small", why));
	const node = h("details.menu", h("summary.btn.icon", { label: "More actions" }, icon("i-more")),
		h("div", { role: "menu" },
			item("Resume", actions.resume, { why: isLive(status) ? "is running" : status === "completed" ? "is completed" : undefined }),
			item("Rename…", actions.rename), item("Copy as JSON", () => copy(json(session, 2))), item("Copy link", () => copy(location.href, "Link")), h("hr"),
			item("Abort run", actions.abort, { why: isLive(status) || waits(status) ? undefined : "no run at work", danger: true }),
			item("Delete session…", actions.erase, { danger: true })));
	node.addEventListener("focusout", (event) => { if (!node.contains(event.relatedTarget)) node.open = false; });
	node.addEventListener("keydown", (event) => { if (event.key === "Escape") { node.open = false; node.firstChild.focus(); } });
	return node;
}
