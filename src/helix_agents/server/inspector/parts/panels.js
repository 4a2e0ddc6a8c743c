// The tabs beside a conversation and the panel that one of them shows. On a phone the conversation is also a tab.

import { h, put, redraw } from "../dom.js";
import { chunksPanel } from "../panels/chunks.js";
import { statePanel } from "../panels/state.js";
import { timelinePanel } from "../panels/timeline.js";
import { usagePanel } from "../panels/usage.js";

export const TABS = [["talk", "Conversation"], ["state", "State"], ["timeline", "Timeline"], ["usage", "Usage"], ["chunks", "Chunks"]];
const MAKE = { state: statePanel, timeline: timelinePanel, usage: usagePanel, chunks: chunksPanel };

export class Panels {
	#choose;
	#narrow;
	#tabs = h("div.tabs", { role: "tablist", label: "Panels" });
	#pane = h("div.pane-holder");
	#tab = "";
	panel = null;

	// `choose(name)`: a person chooses another tab.
	constructor({ choose, narrow }) {
		this.#choose = choose;
		this.#narrow = narrow;
		this.node = h("section.panel", { label: "Panels" }, this.#tabs, this.#pane);
		this.#tabs.addEventListener("keydown", (event) => this.#walk(event));
	}

	wait(node) {
		put(this.#pane, node);
	}

	drawTabs(chosen) {
		this.#tab = chosen;
		redraw(this.#tabs, TABS.map(([name, label], place) => h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(name === chosen), "aria-controls": "pane", tabindex: name === chosen ? "0" : "-1", class: name === "talk" ? "only-small" : "", title: place ? `${label} (${place})` : label, onclick: () => this.#choose(name) }, label)));
	}

	show(tab, store, context) {
		this.drawTabs(tab);
		this.stop();
		put(this.#pane);
		if (!store.session || !MAKE[tab]) return;
		this.panel = MAKE[tab](store, context);
		this.panel.node.id = "pane";
		this.panel.node.setAttribute("role", "tabpanel");
		this.panel.node.setAttribute("aria-labelledby", `tab-${tab}`);
		put(this.#pane, this.panel.node);
	}

	stop() {
		this.panel?.stop?.();
		this.panel = null;
	}

	#walk(event) {
		const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
		if (!by) return;
		const names = TABS.map(([name]) => name).filter((name) => name !== "talk" || this.#narrow.matches);
		this.#choose(names[(names.indexOf(this.#tab) + by + names.length) % names.length]);
		this.#tabs.querySelector("[aria-selected=true]").focus();
	}
}
