// One session: header and actions, the conversation on the left, panels on the right.

import { copy, h, put, say } from "../dom.js";
import { useKeys } from "../keys.js";
import { SessionStore } from "../model/session_store.js";
import { Actions } from "../parts/actions.js";
import { Banner } from "../parts/banner.js";
import { broken, skeleton } from "../parts/blank.js";
import { composer } from "../parts/composer.js";
import { conversation } from "../parts/conversation.js";
import { tellNews } from "../parts/news.js";
import { Panels, TABS } from "../parts/panels.js";
import { drawHead } from "../parts/session_head.js";
import { amend, go, link } from "../router.js";
import { json } from "../text.js";

export const session = (view, context) => new SessionView(view, context);

class SessionView {
	#id;
	#store;
	#actions;
	#tab;
	#at;
	#talk = null;
	#narrow = matchMedia("(max-width: 860px)");
	#head = h("div.head");
	#banner = new Banner();
	#left = h("section.conv", { label: "Conversation" });
	#panels = new Panels({ choose: (name) => this.#choose(name), narrow: this.#narrow });
	#split = h("div.split", this.#left, this.#panels.node);

	constructor(view, { parts, search }) {
		this.#id = parts[1];
		this.#store = new SessionStore(this.#id);
		this.#actions = new Actions(this.#store, (text) => this.#banner.show(text));
		this.#read(parts, search);
		document.title = `${this.#id} · helix`;
		put(view, h("div.session-view", this.#head, this.#banner.node, this.#split));
		this.release = useKeys({ ...this.#keys(), ...this.#keysOfPanels() });
		this.#panels.drawTabs(this.#tab);
		this.#begin();
	}

	moved(parts, search) {
		this.#read(parts, search);
		this.#drawPanel();
	}

	stop() {
		this.release();
		this.#panels.stop();
		this.#talk?.stop();
		this.#store.stop();
		this.#banner.stop();
	}

	#read(parts, search) {
		this.#tab = parts[2] ?? (this.#narrow.matches ? "talk" : "state");
		this.#at = search.get("at") ?? "";
		this.#split.dataset.tab = this.#tab;
	}

	async #begin() {
		const store = this.#store;
		const timer = setTimeout(() => { if (!store.session) { put(this.#left, h("div.log", skeleton())); this.#panels.wait(skeleton()); } }, 200);
		try {
			const opening = store.open();
			for (const topic of ["session", "usage"]) store.on(topic, () => this.#drawHead());
			store.on("link", () => this.#banner.drawLink(store));
			await new Promise((resolve, reject) => { store.on("session", resolve); opening.catch(reject); });
			tellNews(store);
			this.#talk = conversation(store, { narrow: this.#narrow, actions: this.#actions, answered: () => store.refresh() });
			put(this.#left, this.#talk.node, composer(store).node);
			this.#drawHead();
			this.#drawPanel();
		} catch (error) { if (error.name !== "AbortError") put(this.#split, broken(error, () => location.reload())); } finally { clearTimeout(timer); }
	}

	#drawHead() {
		document.title = `${this.#store.session?.metadata?.title ?? this.#id} · helix`;
		drawHead(this.#head, this.#store, { actions: this.#actions, toQuestion: () => this.#toQuestion() });
	}

	#drawPanel() {
		const address = () => link(["s", this.#id, this.#tab], this.#at && this.#tab === "state" ? { at: this.#at } : undefined);
		this.#panels.show(this.#tab, this.#store, {
			chosen: this.#at,
			choose: (at) => { this.#at = at; amend(address()); },
			fork: this.#actions.fork,
			restore: async (checkpoint) => { if (await this.#actions.restore(checkpoint)) this.#at = ""; },
			goTo: (step, how) => this.#goTo(step, how),
		});
	}

	#choose(name) {
		if (name !== this.#tab) go(link(["s", this.#id, name]));
	}

	// On a phone the conversation is one of the panels.
	#goTo(step, { leave = false } = {}) {
		if (!this.#narrow.matches) return this.#talk?.goTo(step);
		if (!leave) return undefined;
		this.#choose("talk");
		return requestAnimationFrame(() => requestAnimationFrame(() => this.#talk?.goTo(step)));
	}

	#toQuestion(name = "approve") {
		if (this.#narrow.matches) this.#choose("talk");
		this.#talk?.toEnd();
		requestAnimationFrame(() => (this.#left.querySelector(`.ask:not(.answered) [data-act=${name}]`) ?? this.#left.querySelector(".ask .field"))?.focus());
	}

	#keys() {
		return {
			a: () => this.#toQuestion("approve"), r: () => this.#toQuestion("reject"), i: this.#actions.interrupt,
			f: () => say(this.#talk?.follow() ? "Following" : "Not following"), l: () => copy(location.href, "Link"),
			"/": () => this.#left.querySelector(".composer textarea")?.focus(),
			x: () => this.#fold(), j: () => this.#move(1), k: () => this.#move(-1),
		};
	}

	#keysOfPanels() {
		const byNumber = TABS.slice(1).map(([name], place) => [String(place + 1), () => this.#choose(name)]);
		const panel = () => this.#panels.panel;
		return { ...Object.fromEntries(byNumber), c: () => copy(panel()?.json?.() ?? json(this.#store.session, 2)), "[": () => panel()?.step?.(-1), "]": () => panel()?.step?.(1) };
	}

	#fold() {
		const here = document.activeElement.closest?.("details, article");
		const node = here?.matches("article") ? here.querySelector("details") : here ?? [...this.#left.querySelectorAll("details")].at(-1);
		node?.querySelector("summary").click();
	}

	#move(by) {
		const nodes = [...this.#left.querySelectorAll("article")];
		const place = nodes.indexOf(document.activeElement.closest?.("article"));
		(nodes[Math.min(nodes.length - 1, Math.max(0, place + by))] ?? nodes.at(-1))?.focus();
	}
}
