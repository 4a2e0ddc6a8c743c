// The dock below the state: a slider over the checkpoints, a comparison, fork and restore.

import { showText } from "../dialogs.js";
import { button, choices, h, put, redraw, s } from "../dom.js";
import { at, json, plural, shown } from "../text.js";

const FEW = 12;
const PAGE = 64 * 1024;
const DIGESTS = ["model", "options", "instructions", "tools", "agent"];

// The model request of this step, with what is new since the previous step.
function asked(here, earlier) {
	if (!here?.request) return null;
	const then = earlier.findLast((each) => each.request)?.request;
	const changed = then ? DIGESTS.filter((name) => here.request[name] !== then[name]) : [];
	return h("span.dim", shown(here.request.model), changed.length > 0 && `, new ${changed.join(" and ")}`);
}

export class CheckpointDock {
	#store;
	#acts;
	#none = h("p.dim", "No checkpoint yet. The first commit makes one.");
	#title = h("div.dock-1");
	#marks = s("svg", { "aria-hidden": "true" });
	#slider = h("input", { type: "range", min: "0", step: "1", label: "Checkpoint" });
	#names = h("ol", { "aria-hidden": "true" });
	#scrub = h("div.scrub", this.#marks, this.#slider, this.#names);
	#compare = h("select.field.small", { label: "Compared with" });
	#actions = h("div.dock-2");

	// `acts`: select(place), compare(id), fork(id), restore(checkpoint).
	constructor(store, acts) {
		this.#store = store;
		this.#acts = acts;
		this.node = h("section.dock", { label: "Checkpoints" }, this.#none, this.#title, this.#scrub, this.#actions);
		this.#slider.addEventListener("input", () => acts.select(Number(this.#slider.value)));
		this.#compare.addEventListener("change", () => acts.compare(this.#compare.value));
	}

	// Do not move the slider: a person may be dragging it.
	draw({ place, before, other }) {
		const list = this.#store.checkpoints;
		const here = list[place];
		this.#none.hidden = list.length > 0;
		for (const part of [this.#title, this.#scrub, this.#actions]) part.hidden = !list.length;
		if (!list.length) return;
		this.#drawSlider(list, place);
		choices(this.#compare, [["", before ? `previous, ${before.name}` : "nothing"], ...list.filter((each) => each !== here).map((each) => [each.checkpoint_id, `${each.name}, ${at(each.created_at)}`])], other);
		const older = this.#store.checkpointTotal - list.length;
		redraw(this.#title, h("b", here ? `Checkpoint ${here.name}` : "Now"), older > 0 && button(plural(older, "older one"), () => this.#store.loadOlderCheckpoints(), { kind: "quiet tiny linkish" }), h("span.grow"), h("label.dim", "Compared with ", this.#compare));
		redraw(this.#actions,
			h("span", here ? `${at(here.created_at)}, version ${here.version}, chunk ${here.stream_sequence}` : `version ${this.#store.session.version}`),
			asked(here, list.slice(0, place)), h("span.grow"),
			here?.request && button("Request", () => showText(`Request of ${here.name}`, json(here.request, 2), PAGE)),
			button(here ? `Fork at ${here.name}` : "Fork", () => this.#acts.fork(here?.checkpoint_id), { glyph: "i-fork" }), here && button(`Restore ${here.name}…`, () => this.#acts.restore(here)));
	}

	#drawSlider(list, place) {
		const here = list[place];
		const last = list.length;
		this.#slider.max = String(last);
		this.#slider.value = String(place);
		this.#slider.setAttribute("aria-valuetext", here ? `checkpoint of step ${here.step_count}` : "now");
		const few = last <= FEW ? list : [list[0], list[Math.floor(last / 3)], list[Math.floor((2 * last) / 3)]];
		put(this.#marks, s("line", { x1: "0", x2: "100%", y1: "12", y2: "12" }), last <= 2 * FEW && Array.from({ length: last + 1 }, (_, each) => s("circle", { cx: `${(100 * each) / last}%`, cy: "12", r: "3.5" })));
		put(this.#names, few.map((each) => h("li", { "aria-current": each === here ? "true" : undefined }, each.name)), h("li", { "aria-current": here ? undefined : "true" }, "now"));
	}
}
