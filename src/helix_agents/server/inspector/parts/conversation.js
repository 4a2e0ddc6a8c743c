// The conversation: stored entries in pages, the open part after them, a button when something new is below.

import { button, eachFrame, h, put } from "../dom.js";
import { isLive } from "../status.js";
import { plural } from "../text.js";
import { cut, message } from "./message.js";
import { OpenPart } from "./open_part.js";
import { Pages } from "./pages.js";
import { Tail } from "./tail.js";

const MOST = 1000;

export const conversation = (store, context) => new Conversation(store, context);

class Conversation {
	#store;
	#narrow;
	#open;
	#tail;
	#pages;
	#list = h("div");
	#earlier = h("p.earlier", { hidden: true });
	#top = null;
	#resized = () => { this.#pages.watch(this.#tail.root); this.#watch(); };
	#draw = eachFrame(() => this.#drawNow());
	#isNew = true;
	#isPutOff = false;
	#known = null;
	#first = 0;
	#cuts = 0;
	#isWhole = false;

	constructor(store, { answered, actions, narrow }) {
		this.#store = store;
		this.#narrow = narrow;
		this.#open = new OpenPart(store, answered, actions);
		const log = h("div.log.scroll", { role: "log", label: "Conversation", tabindex: "0", "aria-live": "off" }, this.#earlier, this.#list, this.#open.node);
		this.#tail = new Tail(log, narrow);
		this.node = h("div.talk", log, this.#tail.jump);
		this.#pages = new Pages(this.#tail.root, this.#list, (item) => (item.kind === "cut" ? cut(item, (run) => store.workerOf(run)) : message(item, this.#open.context)));
		narrow.addEventListener("change", this.#resized);
		log.addEventListener("keydown", (event) => this.#home(event));
		this.#open.node.addEventListener("focusout", () => { if (this.#isPutOff) this.#draw(); });
		this.#listen();
		this.#drawAll();
	}

	toEnd() {
		this.#tail.toEnd();
	}

	follow() {
		this.#tail.follows = !this.#tail.follows;
		if (this.#tail.follows) this.toEnd();
		return this.#tail.follows;
	}

	async goTo(step) {
		const find = () => this.#store.story.items.find((item) => item.step === step && item.role === "assistant");
		const openNode = (id) => this.#open.node.querySelector(`#${CSS.escape(id)}`);
		while (!find() && this.#store.story.first && !openNode(`open-${step}`)) await this.#store.loadEarlier(MOST);
		this.#isNew = true;
		this.#drawNow();
		const found = this.#pages.reveal(find()) ?? openNode(find()?.key ?? `open-${step}`);
		this.#tail.follows = false;
		found?.scrollIntoView({ block: "start" });
		found?.focus({ preventScroll: true });
	}

	stop() {
		this.#pages.stop();
		this.#top?.disconnect();
		this.#draw.stop();
		this.#tail.stop();
		this.#narrow.removeEventListener("change", this.#resized);
	}

	#listen() {
		const store = this.#store;
		store.on("story", () => this.#drawAll());
		store.on("history", () => this.#drawPast());
		for (const topic of ["usage", "branches"]) store.on(topic, eachFrame(() => this.#tail.keep(() => this.#pages.redraw())));
		for (const topic of ["draft", "session", "link"]) store.on(topic, this.#draw);
	}

	// Earlier messages are fetched as a person scrolls near them.
	#watch() {
		const near = (entries) => { if (entries.at(-1).isIntersecting && this.#store.story.first) this.#store.loadEarlier().catch(() => {}); };
		this.#top?.disconnect();
		this.#top = new IntersectionObserver(near, { root: this.#tail.root, rootMargin: "1500px 0px 0px" });
		this.#top.observe(this.#earlier);
	}

	async #home(event) {
		if (event.key !== "Home" || !this.#store.story.first) return;
		this.#tail.follows = false;
		while (this.#store.story.first) await this.#store.loadEarlier(MOST);
		this.#isNew = true;
		this.#drawNow();
		this.#tail.scroller.scrollTop = 0;
	}

	#drawAll() {
		this.#isNew = true;
		this.#draw();
	}

	#drawPast() {
		const { history, historyIsWhole } = this.#store;
		if (historyIsWhole && !this.#isWhole) { this.#isWhole = true; this.#pages.redraw(); }
		if (history.cuts.length !== this.#cuts) { this.#cuts = history.cuts.length; this.#drawAll(); }
	}

	// Draw both halves in one frame: a step that has just been stored must never be in both or in neither.
	// While a person writes an answer, what they see stays until they are done.
	#drawNow() {
		this.#tail.keep(() => {
			this.#open.forgetAnswered();
			this.node.classList.toggle("live", isLive(this.#store.session.status));
			this.#isPutOff = this.#open.isBusy && this.#known === this.#store.story.count;
			if (this.#isNew) this.#drawStory();
			this.#isNew = false;
			if (!this.#isPutOff) this.#open.draw();
		});
	}

	#drawStory() {
		const { story, history } = this.#store;
		const items = withCuts(story.endsOpen ? story.items.slice(0, -1) : story.items, history.cuts);
		if (this.#known !== null) this.#tail.tellNew(story.count - this.#known);
		// A scroller at its very top loses its position when something is prepended.
		if (story.first < this.#first && !this.#tail.scroller.scrollTop) this.#tail.scroller.scrollTop = 1;
		this.#earlier.hidden = !story.first;
		put(this.#earlier, button(plural(story.first, "earlier message"), () => this.#store.loadEarlier(), { kind: "quiet tiny" }));
		this.#pages.set(items);
		// A step that was open until now must stay visible until its page is drawn.
		if (this.#known !== story.count) this.#pages.reveal(items.at(-1));
		if (this.#known === null && story.count) this.toEnd();
		if (story.first !== this.#first || this.#known === null) this.#watch();
		this.#known = story.count;
		this.#first = story.first;
	}
}

// Crashes are drawn between the entries that were stored before and after them.
function withCuts(items, cuts) {
	if (!cuts.length) return items;
	const mark = (each, place) => Object.assign(each, { kind: "cut", place });
	const result = [];
	let next = 0;
	for (const item of items) {
		while (next < cuts.length && item.at && cuts[next].to <= item.at) { result.push(mark(cuts[next], item.place)); next += 1; }
		result.push(item);
	}
	return [...result, ...cuts.slice(next).map((each) => mark(each, items.at(-1)?.place ?? 0))];
}
