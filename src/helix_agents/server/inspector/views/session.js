// One session: header and actions, the conversation at the left, panels at the right.

import { path, post, remove } from "../api.js";
import { confirm } from "../dialogs.js";
import { button, copy, h, icon, put, redraw, say } from "../dom.js";
import { useKeys } from "../keys.js";
import { SessionStore } from "../model/session_store.js";
import { chunksPanel } from "../panels/chunks.js";
import { statePanel } from "../panels/state.js";
import { timelinePanel } from "../panels/timeline.js";
import { usagePanel } from "../panels/usage.js";
import { broken, skeleton } from "../parts/blank.js";
import { composer } from "../parts/composer.js";
import { conversation } from "../parts/conversation.js";
import { tellNews } from "../parts/news.js";
import { amend, go, link, sessionLink } from "../router.js";
import { isLive, isOver, pill, waits } from "../status.js";
import { brief, inFull, json, money, plural, shown, when } from "../text.js";

const TABS = [["talk", "Conversation"], ["state", "State"], ["timeline", "Timeline"], ["usage", "Usage"], ["chunks", "Chunks"]];
const MAKE = { state: statePanel, timeline: timelinePanel, usage: usagePanel, chunks: chunksPanel };

export function session(view, { parts, search }) {
	const id = parts[1];
	const store = new SessionStore(id);
	const head = h("div.head");
	const banner = h("div.banner", { role: "status", hidden: true });
	const pane = h("div.pane-holder");
	const tabs = h("div.tabs", { role: "tablist", label: "Panels" });
	const left = h("section.conv", { label: "Conversation" });
	const split = h("div.split", left, h("section.panel", { label: "Panels" }, tabs, pane));
	const narrow = matchMedia("(max-width: 860px)");
	let tab = parts[2] ?? (narrow.matches ? "talk" : "state");
	let panel = null;
	let talk = null;
	let chosen = search.get("at") ?? "";
	document.title = `${id} · helix`;
	put(view, h("div.session-view", head, banner, split));

	const address = () => link(["s", id, tab], chosen && tab === "state" ? { at: chosen } : undefined);

	// Every action says what went wrong where it was asked for.
	async function act(work, done) {
		try { const result = await work(); if (done) say(done); return result; } catch (error) { showBanner(error.message); return null; }
	}
	const fork = async (checkpoint) => {
		const made = await act(() => post(path("sessions", id, "fork"), checkpoint ? { checkpoint_id: checkpoint } : {}));
		if (made) go(sessionLink(made.session_id));
	};
	const restore = async (checkpoint) => {
		const sure = await confirm(`Restore checkpoint s${checkpoint.step_count}?`, "State and messages go back to this commit. Later checkpoints and staged writes are dropped; a fork keeps them.", { yes: "Restore", no: "Leave it", danger: true });
		if (sure && (await act(() => post(path("sessions", id, "restore"), { checkpoint_id: checkpoint.checkpoint_id }), "Restored"))) { chosen = ""; store.reload(); }
	};
	const interrupt = () => act(() => post(path("sessions", id, "interrupt"), { reason: "by hand" }), "Interrupt requested");
	const resume = () => act(() => post(path("sessions", id, "resume"), {}), "Resumed");
	const abort = async () => { if (await confirm("Abort this run?", "It stops at once and ends as failed. An interrupt lets it stop at a safe point.", { yes: "Abort", no: "Let it run", danger: true })) act(() => post(path("sessions", id, "abort"), { reason: "by hand" }), "Abort requested"); };
	const erase = async () => {
		const many = store.children.length;
		const sure = await confirm(`Delete ${id}${many ? ` and its ${plural(many, "sub-session")}` : ""}?`, "Messages, state, checkpoints and chunks go with it. This cannot be undone.", { yes: many ? `Delete ${many + 1} sessions` : "Delete", danger: true });
		if (sure && (await act(async () => { await remove(path("sessions", id)); return true; }))) go(link([]));
	};

	function drawHead() {
		const now = store.session;
		// A menu that somebody has opened stays as it is until it is closed.
		if (!now || head.querySelector(".menu[open]")) return;
		const many = store.waiting.length;
		const run = store.runs.at(-1);
		const total = store.usage?.tokens.total;
		const cost = store.usage?.custom.cost;
		const live = isLive(now.status);
		const copyId = button("", () => copy(id, "Session id"), { kind: "quiet icon", label: "Copy session id", title: "Copy" });
		copyId.append(icon("i-copy"));
		const fact = (name, ...value) => h("div", h("dt", name), h("dd", value));
		redraw(head,
			h("div.head-1", h("a.crumb", { href: link([]) }, "Sessions /"), h("h1", { title: id }, shown(now.metadata?.title ?? id)), copyId, !(many && waits(now.status)) && pill(now.status),
				many > 0 && h("a.pill.wait", { href: address(), onclick: (event) => { event.preventDefault(); focusAsk(); } }, icon("s-wait", "g wait"), `${plural(many, "question")} waiting`),
				h("div.actions",
					live || waits(now.status) ? button("Interrupt", interrupt, { glyph: "i-stop" }) : !isOver(now.status) || now.failure_reason ? button("Resume", resume, { kind: "primary", glyph: "i-next" }) : null,
					button("Fork", () => fork(), { glyph: "i-fork" }), menu(now))),
			h("dl.facts",
				fact("Agent", h("a", { href: link([], { agent_type: now.agent_type }) }, shown(now.agent_type))),
				now.user_id && fact("User", h("a", { href: link([], { user_id: now.user_id }) }, shown(now.user_id))),
				now.parent_session_id && fact("Parent", h("a", { href: sessionLink(now.parent_session_id) }, shown(now.parent_session_id))),
				run && fact("Turn", String(store.turnOf(run.run_id) || 1), run.metadata?.worker ? [" on ", shown(run.metadata.worker)] : ""),
				fact("Step", String(now.step_count)), total > 0 && fact("Tokens", brief(total)), cost > 0 && fact("Cost", money(cost)), fact("Began", h("time", { title: inFull(now.created_at) }, when(now.created_at))),
				now.tags.length > 0 && fact("Tags", now.tags.map((tag) => h("a.tag", { href: link([], { tag }) }, shown(tag))))));
	}

	function menu(now) {
		const item = (label, run, { why, danger } = {}) => h("button", { type: "button", role: "menuitem", class: danger ? "danger" : "", disabled: Boolean(why), onclick: () => { node.open = false; run(); } }, label, why && h("small", why));
		const node = h("details.menu", h("summary.btn.icon", { label: "More actions" }, icon("i-more")),
			h("div", { role: "menu" }, item("Resume", resume, { why: isLive(now.status) ? "is running" : now.status === "completed" ? "is completed" : undefined }), item("Copy as JSON", () => copy(json(now, 2))), item("Copy link", () => copy(location.href, "Link")), h("hr"), item("Abort run", abort, { why: isLive(now.status) || waits(now.status) ? undefined : "no run at work", danger: true }), item("Delete session…", erase, { danger: true })));
		node.addEventListener("focusout", (event) => { if (!node.contains(event.relatedTarget)) node.open = false; });
		node.addEventListener("keydown", (event) => { if (event.key === "Escape") { node.open = false; node.firstChild.focus(); } });
		return node;
	}

	let told = 0;
	function showBanner(text, actions = []) {
		clearTimeout(told);
		banner.hidden = false;
		put(banner, h("span.grow", shown(text)), actions);
		if (!actions.length) told = setTimeout(() => { banner.hidden = true; }, 8000);
	}
	function drawLink() {
		document.body.classList.toggle("stale", store.link === "lost");
		if (store.link === "lost") return showBanner(`The connection is lost. Trying again; the stream goes on from chunk ${store.sequence}.`, [button("Try now", () => store.retryNow())]);
		if (store.link === "gone") return showBanner("This session was deleted.", [button("All sessions", () => go(link([])))]);
		if (store.link instanceof Error) return showBanner(store.link.message, [button("Try now", () => store.reload())]);
		clearTimeout(told);
		banner.hidden = true;
		return undefined;
	}

	function drawTabs() {
		split.dataset.tab = tab;
		redraw(tabs, TABS.map(([name, label], place) => h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(name === tab), "aria-controls": "pane", tabindex: name === tab ? "0" : "-1", class: name === "talk" ? "only-small" : "", title: place ? `${label} (${place})` : label, onclick: () => choose(name) }, label)));
	}
	tabs.addEventListener("keydown", (event) => {
		const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
		if (!by) return;
		const names = TABS.map(([name]) => name).filter((name) => name !== "talk" || narrow.matches);
		choose(names[(names.indexOf(tab) + by + names.length) % names.length]);
		tabs.querySelector("[aria-selected=true]").focus();
	});
	function choose(name) { if (name !== tab) go(link(["s", id, name])); }
	function drawPanel() {
		drawTabs();
		panel?.stop?.();
		panel = null;
		put(pane);
		if (!store.session || !MAKE[tab]) return;
		panel = MAKE[tab](store, { chosen, choose: (at) => { chosen = at; amend(address()); }, fork, restore, goTo });
		panel.node.id = "pane";
		panel.node.setAttribute("role", "tabpanel");
		panel.node.setAttribute("aria-labelledby", `tab-${tab}`);
		put(pane, panel.node);
	}

	// On a phone the conversation is a panel of its own.
	function goTo(step, { leave = false } = {}) {
		if (narrow.matches && !leave) return;
		if (narrow.matches) { go(link(["s", id, "talk"])); requestAnimationFrame(() => requestAnimationFrame(() => talk?.goTo(step))); } else talk?.goTo(step);
	}

	function focusAsk(name = "approve") {
		if (narrow.matches && tab !== "talk") choose("talk");
		talk?.toEnd();
		requestAnimationFrame(() => (left.querySelector(`.ask:not(.answered) [data-act=${name}]`) ?? left.querySelector(".ask .field"))?.focus());
	}

	async function begin() {
		const timer = setTimeout(() => { if (!store.session) { put(left, h("div.log", skeleton())); put(pane, skeleton()); } }, 200);
		try {
			const opening = store.open();
			store.on("session", drawHead);
			store.on("usage", drawHead);
			store.on("link", drawLink);
			await new Promise((resolve, reject) => { store.on("session", resolve); opening.catch(reject); });
			tellNews(store);
			talk = conversation(store, { narrow, answered: () => store.refresh() });
			const box = composer(store);
			put(left, talk.node, box.node);
			drawHead();
			drawPanel();
			await opening;
			drawHead();
		} catch (error) { if (error.name !== "AbortError") put(split, broken(error, () => location.reload())); } finally { clearTimeout(timer); }
	}

	const byNumber = Object.fromEntries(TABS.slice(1).map(([name], place) => [String(place + 1), () => choose(name)]));
	const release = useKeys({
		...byNumber, a: () => focusAsk("approve"), r: () => focusAsk("reject"), i: interrupt, f: () => say(talk?.follow() ? "Following" : "Not following"),
		c: () => copy(panel?.json?.() ?? json(store.session, 2)), l: () => copy(location.href, "Link"),
		"[": () => panel?.step?.(-1), "]": () => panel?.step?.(1), "/": () => left.querySelector(".composer textarea")?.focus(),
		x: () => {
			const here = document.activeElement.closest?.("details, article");
			const node = here?.matches("article") ? here.querySelector("details") : here ?? [...left.querySelectorAll("details")].at(-1);
			node?.querySelector("summary").click();
		},
		j: () => step(1), k: () => step(-1),
	});
	function step(by) {
		const nodes = [...left.querySelectorAll("article")];
		const place = nodes.indexOf(document.activeElement.closest?.("article"));
		(nodes[Math.min(nodes.length - 1, Math.max(0, place + by))] ?? nodes.at(-1))?.focus();
	}
	drawTabs();
	begin();

	return {
		moved(next, search) { tab = next[2] ?? (narrow.matches ? "talk" : "state"); chosen = search.get("at") ?? ""; drawPanel(); },
		stop() { release(); panel?.stop?.(); talk?.stop(); store.stop(); clearTimeout(told); document.body.classList.remove("stale"); },
	};
}
