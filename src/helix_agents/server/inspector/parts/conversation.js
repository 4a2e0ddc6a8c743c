// The conversation: stored entries in pages, the open step behind them, a button when something new is below.

import { button, eachFrame, h, put, redraw } from "../dom.js";
import { isLive } from "../status.js";
import { plural } from "../text.js";
import { ask, questionKey } from "./ask.js";
import { blank } from "./blank.js";
import { cut, message, note, openStep } from "./message.js";
import { Pages } from "./pages.js";

const NEAR = 48;
const MOST = 1000;

export function conversation(store, { answered, narrow }) {
	const list = h("div");
	const open = h("div.open");
	const earlier = h("p.earlier", { hidden: true });
	const log = h("div.log.scroll", { role: "log", label: "Conversation", tabindex: "0", "aria-live": "off" }, earlier, list, open);
	const jump = button("", () => toEnd(), { kind: "new", hidden: true });
	const node = h("div.talk", log, jump);
	const asks = new Map();
	let follows = true;
	let unseen = 0;

	// A phone scrolls the whole page, everybody else the log.
	const scroller = () => (narrow.matches ? document.scrollingElement : log);
	const root = () => (narrow.matches ? null : log);
	// What somebody types into a question survives a new drawing.
	const question = (each) => {
		const key = questionKey(each);
		if (!asks.has(key)) asks.set(key, ask(each, { sessionId: store.session.root_session_id ?? store.id, answered }));
		return asks.get(key);
	};
	const context = () => ({ agent: store.session.agent_type, sessionId: store.id, question, below: (id) => store.waitingBelow(id), times: store.history.calls, usage: store.usageByStep });
	const pages = new Pages(root(), list, (item) => (item.kind === "cut" ? cut(item, (run) => store.workerOf(run)) : message(item, context())));
	const toBottom = () => { const each = scroller(); each.scrollTop = each.scrollHeight; };
	const toEnd = () => { follows = true; unseen = 0; jump.hidden = true; toBottom(); };
	const scrolled = () => {
		const each = scroller();
		follows = each.scrollTop + each.clientHeight >= each.scrollHeight - NEAR;
		if (follows) { unseen = 0; jump.hidden = true; }
	};
	log.addEventListener("scroll", scrolled, { passive: true });
	document.addEventListener("scroll", scrolled, { passive: true });

	// Earlier messages are fetched as somebody comes near them.
	const near = (entries) => { if (entries.at(-1).isIntersecting && store.story.first) store.loadEarlier().catch(() => {}); };
	let top = null;
	const watch = () => {
		top?.disconnect();
		top = new IntersectionObserver(near, { root: root(), rootMargin: "1500px 0px 0px" });
		top.observe(earlier);
	};
	const resized = () => { pages.watch(root()); watch(); };
	narrow.addEventListener("change", resized);
	log.addEventListener("keydown", async (event) => {
		if (event.key !== "Home" || !store.story.first) return;
		follows = false;
		while (store.story.first) await store.loadEarlier(MOST);
		isNew = true;
		drawNow();
		scroller().scrollTop = 0;
	});

	function withCuts(items) {
		const { cuts } = store.history;
		if (!cuts.length) return items;
		const result = [];
		let next = 0;
		for (const item of items) {
			while (next < cuts.length && item.at && cuts[next].to <= item.at) { result.push(mark(cuts[next], item.place)); next += 1; }
			result.push(item);
		}
		return [...result, ...cuts.slice(next).map((each) => mark(each, items.at(-1)?.place ?? 0))];
	}
	const mark = (each, place) => Object.assign(each, { kind: "cut", place });

	const keep = (draw) => { const was = follows; draw(); if (was) toBottom(); };
	let known = null;
	let first = 0;
	function drawStory() {
		const { story } = store;
		const items = withCuts(story.endsOpen ? story.items.slice(0, -1) : story.items);
		if (known !== null && story.count > known && !follows) { unseen += story.count - known; jump.hidden = false; put(jump, `${unseen} new`); }
		// A scroller at its very top does not hold its place when something is put in front.
		if (story.first < first && !scroller().scrollTop) scroller().scrollTop = 1;
		earlier.hidden = !story.first;
		put(earlier, button(`${plural(story.first, "earlier message")}`, () => store.loadEarlier(), { kind: "quiet tiny" }));
		pages.set(items);
		// What was an open step a moment ago must not be gone until its page is seen.
		if (known !== story.count) pages.reveal(items.at(-1));
		if (known === null && story.count) toEnd();
		if (story.first !== first || known === null) watch();
		known = story.count;
		first = story.first;
	}

	// A step that was put aside is stored before its questions are answered: it is drawn here, with what chunks say of it.
	function putAside() {
		const { draft, story } = store;
		if (!story.endsOpen) return null;
		const item = story.items.at(-1);
		const live = new Map([...draft.calls()].map((call) => [call.id, call]));
		const waiting = new Map(store.waiting.map((each) => [each.tool_call_id, each]));
		const calls = [...item.calls.values()].map((call) => {
			const { child, ...now } = live.get(call.id) ?? {};
			const known = call.state === "asked" ? { ...call, ...now, input: now.input ?? call.input, child: child ?? call.child } : call;
			const isOpen = known.state !== "done" && known.state !== "failed";
			const answeredBy = store.session.pending_client_tool_calls?.[call.id]?.answered_by ?? known.answeredBy;
			return [call.id, { ...known, answeredBy, ask: isOpen ? waiting.get(call.id) : undefined }];
		});
		return message({ ...item, calls: new Map(calls) }, { ...context(), live: isLive(store.session.status) });
	}

	function drawOpen() {
		const { draft, story, session } = store;
		if (draft.isEmpty && !story.count) return put(open, blank("No message yet", "What people and the agent say appears here."));
		const live = isLive(session.status) && store.link === "live";
		const failed = session.status === "failed" && !draft.notes.length && session.error;
		const notes = failed ? [{ kind: "error", at: session.updated_at, texts: [session.error] }] : draft.notes;
		return redraw(open, putAside(), store.openSteps.map((step) => openStep(step, step.agent ?? session.agent_type, { ...context(), live })), notes.map(note));
	}

	// Somebody writes an answer to a question that still waits: what they see stays until they are done.
	const isAnswering = () => {
		const { activeElement } = document;
		return open.contains(activeElement) && activeElement.matches("input, textarea") && asks.has(activeElement.closest(".ask")?.dataset.question);
	};

	// Both halves in one frame: a step that goes from the open ones to the stored ones is never in both or in neither.
	let isNew = true;
	let isPutOff = false;
	const drawNow = () => keep(() => {
		const waiting = new Set(store.waiting.map(questionKey));
		for (const key of asks.keys()) if (!waiting.has(key)) asks.delete(key);
		isPutOff = isAnswering() && known === store.story.count;
		if (isNew) drawStory();
		isNew = false;
		if (!isPutOff) drawOpen();
	});
	const draw = eachFrame(drawNow);
	const drawAll = () => { isNew = true; draw(); };
	open.addEventListener("focusout", () => { if (isPutOff) draw(); });

	let cuts = 0;
	let whole = false;
	const past = () => {
		if (store.historyIsWhole && !whole) { whole = true; pages.redraw(); }
		if (store.history.cuts.length !== cuts) { cuts = store.history.cuts.length; drawAll(); }
	};
	store.on("story", drawAll);
	store.on("history", past);
	store.on("usage", eachFrame(() => keep(() => pages.redraw())));
	for (const topic of ["draft", "session", "link"]) store.on(topic, draw);
	drawAll();

	return {
		node,
		toEnd,
		follow() { follows = !follows; if (follows) toEnd(); return follows; },
		async goTo(step) {
			const find = () => store.story.items.find((item) => item.step === step && item.role === "assistant");
			while (!find() && store.story.first && !open.querySelector(`#open-${step}`)) await store.loadEarlier(MOST);
			isNew = true;
			drawNow();
			const found = pages.reveal(find()) ?? open.querySelector(`#${CSS.escape(find()?.key ?? `open-${step}`)}`);
			follows = false;
			found?.scrollIntoView({ block: "start" });
			found?.focus({ preventScroll: true });
		},
		stop() {
			pages.stop(); top?.disconnect(); draw.stop();
			narrow.removeEventListener("change", resized);
			document.removeEventListener("scroll", scrolled);
		},
	};
}
