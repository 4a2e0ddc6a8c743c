// State: the tree as it is now or as it was at a checkpoint, and the difference to another; fork or restore from there.

import { get, path } from "../api.js";
import { button, copyButton, eachFrame, h, put, redraw } from "../dom.js";
import { counts, diffTree } from "../model/diff.js";
import { blank } from "../parts/blank.js";
import { json, shown } from "../text.js";
import { CheckpointDock } from "./checkpoints.js";
import { tree } from "./tree.js";

const KEPT = 40;

export const statePanel = (store, context) => new StatePanel(store, context);

class StatePanel {
	#store;
	#choose;
	#options;
	#lines;
	#dock;
	#head = h("div.bar-top");
	#cache = new Map();
	#selected;
	#other = "";
	#now = {};
	#wanted = "";
	#redraw = eachFrame(() => this.#draw());

	constructor(store, { chosen, choose, fork, restore }) {
		this.#store = store;
		this.#choose = choose;
		this.#selected = chosen;
		this.#options = { onlyChanges: false, flashes: store.flashes };
		this.#lines = tree(this.#options);
		this.#dock = new CheckpointDock(store, { fork, restore, select: (place) => this.#select(place), compare: (id) => { this.#other = id; this.#draw(); } });
		this.node = h("div.pane", this.#head, this.#lines.node, this.#dock.node);
		store.on("state", () => { if (!this.#selected) this.#redraw(); });
		store.on("checkpoints", this.#redraw);
		this.#redraw();
	}

	step(by) {
		this.#select(this.#placeOf(this.#selected) + by);
	}

	json() {
		return json(this.#now, 2);
	}

	stop() {
		this.#redraw.stop();
	}

	#select(place) {
		const { checkpoints } = this.#store;
		this.#selected = checkpoints[Math.min(checkpoints.length, Math.max(0, place))]?.checkpoint_id ?? "";
		this.#choose(this.#selected);
		this.#draw();
	}

	#placeOf(id) {
		const place = id ? this.#store.checkpoints.findIndex((each) => each.checkpoint_id === id) : -1;
		return place < 0 ? this.#store.checkpoints.length : place;
	}

	// With an open step, compare with the last commit; otherwise the state is that commit, so compare with the one before.
	#previous(place) {
		const { checkpoints, isPatched } = this.#store;
		return checkpoints[place - (place === checkpoints.length && !isPatched ? 2 : 1)];
	}

	async #stateAt(checkpoint) {
		if (!checkpoint) return {};
		const id = checkpoint.checkpoint_id;
		if (!this.#cache.has(id)) {
			const found = await get(path("sessions", this.#store.id, "checkpoints", id));
			this.#cache.set(id, found.state.custom_state ?? {});
			if (this.#cache.size > KEPT) this.#cache.delete(this.#cache.keys().next().value);
		}
		return this.#cache.get(id);
	}

	async #draw() {
		const list = this.#store.checkpoints;
		const place = this.#placeOf(this.#selected);
		const here = list[place];
		const wanted = `${this.#selected} ${this.#other} ${this.#store.session.version}`;
		this.#wanted = wanted;
		try {
			const chosen = here && await this.#stateAt(here);
			const then = await this.#stateAt(this.#other ? list[this.#placeOf(this.#other)] : this.#previous(place));
			if (wanted !== this.#wanted) return;
			this.#now = here ? chosen : this.#store.state;
			this.#drawTree(here, diffTree(then, this.#now));
			this.#dock.draw({ place, before: this.#previous(place), other: this.#other });
		} catch (error) {
			if (wanted === this.#wanted) put(this.#head, h("span.red", shown(error.message)));
		}
	}

	#drawTree(here, root) {
		const total = counts(root);
		const { onlyChanges } = this.#options;
		redraw(this.#head,
			h("b", here ? `After step ${here.step_count}` : "Now"),
			total.added > 0 && h("span.green", `+${total.added} added`), total.changed > 0 && h("span.blue", `~${total.changed} changed`), total.removed > 0 && h("span.red", `−${total.removed} removed`),
			h("span.grow"),
			button("Only changes", () => { this.#options.onlyChanges = !onlyChanges; this.#draw(); }, { kind: "quiet tiny", "aria-pressed": String(onlyChanges) }),
			copyButton(() => json(this.#now, 2)));
		this.#lines.set(root);
		if (this.#lines.node.children.length) return;
		put(this.#lines.node, onlyChanges ? blank("No change here", "Compare with another checkpoint, or show everything.") : blank("The state is empty", "Tools write to it with ctx.update_state."));
	}
}
