// State: the tree as it is now or as it was at a checkpoint, and the difference to another; fork or restore from there.

import { get, path } from "../api.js";
import { button, choices, copyButton, eachFrame, h, put, redraw as drawAgain, s } from "../dom.js";
import { counts, diffTree } from "../model/diff.js";
import { blank } from "../parts/blank.js";
import { at, json, plural, shown } from "../text.js";
import { tree } from "./tree.js";

const KEPT = 40;
const FEW = 12;

export function statePanel(store, { chosen, choose, fork, restore }) {
	const options = { onlyChanges: false, flashes: store.flashes };
	const lines = tree(options);
	const head = h("div.bar-top");
	const dock = h("section.dock", { label: "Checkpoints" });
	const node = h("div.pane", head, lines.node, dock);
	const cache = new Map();
	const slider = h("input", { type: "range", min: "0", step: "1", label: "Checkpoint" });
	const compare = h("select.field.small", { label: "Compared with" });
	let selected = chosen;
	let other = "";
	let now = {};

	const placeOf = (id) => {
		const place = id ? store.checkpoints.findIndex((each) => each.checkpoint_id === id) : -1;
		return place < 0 ? store.checkpoints.length : place;
	};
	const stateAt = async (checkpoint) => {
		if (!checkpoint) return {};
		const id = checkpoint.checkpoint_id;
		if (!cache.has(id)) {
			const found = await get(path("sessions", store.id, "checkpoints", id));
			cache.set(id, found.state.custom_state ?? {});
			if (cache.size > KEPT) cache.delete(cache.keys().next().value);
		}
		return cache.get(id);
	};
	// What is now differs from the last commit while a step is open; at rest it is that commit, so the one before counts.
	const previous = (place) => store.checkpoints[place - (place === store.checkpoints.length && !store.isPatched ? 2 : 1)];

	async function draw() {
		const list = store.checkpoints;
		const place = placeOf(selected);
		const here = list[place];
		const wanted = `${selected} ${other} ${store.session.version}`;
		draw.wanted = wanted;
		let chosen;
		let then;
		try {
			chosen = here && await stateAt(here);
			then = await stateAt(other ? list[placeOf(other)] : previous(place));
		} catch (error) {
			if (wanted === draw.wanted) put(head, h("span.red", shown(error.message)));
			return;
		}
		if (wanted !== draw.wanted) return;
		now = here ? chosen : store.state;
		const root = diffTree(then, now);
		const total = counts(root);
		drawAgain(head,
			h("b", here ? `After step ${here.step_count}` : "Now"),
			total.added > 0 && h("span.green", `+${total.added} added`), total.changed > 0 && h("span.blue", `~${total.changed} changed`), total.removed > 0 && h("span.red", `−${total.removed} removed`),
			h("span.grow"),
			button("Only changes", () => { options.onlyChanges = !options.onlyChanges; draw(); }, { kind: "quiet tiny", "aria-pressed": String(options.onlyChanges) }),
			copyButton(() => json(now, 2)));
		lines.set(root);
		if (!lines.node.children.length) put(lines.node, options.onlyChanges ? blank("No change here", "Compare with another checkpoint, or show everything.") : blank("The state is empty", "Tools write to it with ctx.update_state."));
		drawDock(list, place);
	}

	// The slider itself stays where it is: somebody may be dragging it.
	const title = h("div.dock-1");
	const marks = s("svg", { "aria-hidden": "true" });
	const names = h("ol", { "aria-hidden": "true" });
	const actions = h("div.dock-2");
	const none = h("p.dim", "No checkpoint yet. The first commit makes one.");
	put(dock, none, title, h("div.scrub", marks, slider, names), actions);

	function drawDock(list, place) {
		none.hidden = list.length > 0;
		for (const part of [title, slider.parentNode, actions]) part.hidden = !list.length;
		if (!list.length) return;
		const here = list[place];
		const last = list.length;
		const before = previous(place);
		const older = store.checkpointTotal - last;
		slider.max = String(last);
		slider.value = String(place);
		slider.setAttribute("aria-valuetext", here ? `checkpoint of step ${here.step_count}` : "now");
		const few = last <= FEW ? list : [list[0], list[Math.floor(last / 3)], list[Math.floor((2 * last) / 3)]];
		choices(compare, [["", before ? `previous, ${before.name}` : "nothing"], ...list.filter((each) => each !== here).map((each) => [each.checkpoint_id, `${each.name}, ${at(each.created_at)}`])], other);
		drawAgain(title, h("b", here ? `Checkpoint ${here.name}` : "Now"), older > 0 && button(plural(older, "older one"), () => store.loadOlderCheckpoints(), { kind: "quiet tiny linkish" }), h("span.grow"), h("label.dim", "Compared with ", compare));
		put(marks, s("line", { x1: "0", x2: "100%", y1: "12", y2: "12" }), last <= 2 * FEW && Array.from({ length: last + 1 }, (_, each) => s("circle", { cx: `${(100 * each) / last}%`, cy: "12", r: "3.5" })));
		put(names, few.map((each) => h("li", { "aria-current": each === here ? "true" : undefined }, each.name)), h("li", { "aria-current": here ? undefined : "true" }, "now"));
		drawAgain(actions, h("span.grow", here ? `${at(here.created_at)}, version ${here.version}, chunk ${here.stream_sequence}` : `version ${store.session.version}`), button(here ? `Fork at ${here.name}` : "Fork", () => fork(here?.checkpoint_id), { glyph: "i-fork" }), here && button(`Restore ${here.name}…`, () => restore(here)));
	}

	const select = (place) => {
		selected = store.checkpoints[Math.min(store.checkpoints.length, Math.max(0, place))]?.checkpoint_id ?? "";
		choose(selected);
		draw();
	};
	slider.addEventListener("input", () => select(Number(slider.value)));
	compare.addEventListener("change", () => { other = compare.value; draw(); });
	const redraw = eachFrame(draw);
	store.on("state", () => { if (!selected) redraw(); });
	store.on("checkpoints", redraw);
	redraw();

	return { node, step: (by) => select(placeOf(selected) + by), json: () => json(now, 2), stop: () => redraw.stop() };
}
