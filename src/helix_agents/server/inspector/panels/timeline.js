// Timeline: worker lane on top, then steps with their model calls and tools as bars; crashes run through all rows.

import { choices, eachFrame, h, put, redraw, s } from "../dom.js";
import { blank } from "../parts/blank.js";
import { at, duration, json, shown, short } from "../text.js";
import { axis, groups, lane, scaleOf, stepRows } from "./timeline_rows.js";

const LEGEND = [["model", "model"], ["", "tool"], ["live", "running"], ["wait", "waits"], ["fail", "failed"], ["gap", "no worker"]];
const TRIES = ["First try", "Second try", "Third try"];
const MOST_STEPS = 60;
const NEAR = 32;

export const timelinePanel = (store, context) => new TimelinePanel(store, context);

class TimelinePanel {
	#store;
	#goTo;
	#turnField = h("select.field.small", { label: "Turn" });
	#chart = h("div.tl.scroll", { role: "listbox", label: "Timeline", tabindex: "0" });
	#dock = h("section.dock.detail", { label: "Selected", "aria-live": "polite" });
	#chosenTurn = null;
	#selected = null;
	#ticking = 0;
	#isFirst = true;
	#redraw = eachFrame(() => this.#draw(), 250);

	constructor(store, { goTo }) {
		this.#store = store;
		this.#goTo = goTo;
		this.node = h("div.pane", h("div.bar-top", this.#turnField, h("span.grow"), legend()), this.#chart, this.#dock);
		this.#chart.addEventListener("keydown", (event) => walk(this.#chart, event));
		this.#turnField.addEventListener("change", () => this.#chooseTurn(Number(this.#turnField.value)));
		for (const topic of ["history", "session", "usage"]) store.on(topic, this.#redraw);
		this.#redraw();
	}

	json() {
		return json(this.#store.history.steps, 2);
	}

	stop() {
		this.#redraw.stop();
		clearTimeout(this.#ticking);
	}

	// If the latest turn is selected, select a new one when it starts; keep an earlier selection.
	#chooseTurn(turn) {
		this.#chosenTurn = turn === this.#store.history.turns().at(-1) ? null : turn;
		this.#selected = null;
		this.#draw();
	}

	#draw() {
		const { history, session } = this.#store;
		const turns = history.turns();
		this.#turnField.hidden = !turns.length;
		if (!turns.length) return this.#drawNothing();
		const turn = turns.includes(this.#chosenTurn) ? this.#chosenTurn : turns.at(-1);
		choices(this.#turnField, turns.map((each) => [String(each), `Turn ${this.#nameOf(each)}`]), String(turn));
		const all = history.steps.filter((step) => step.turn === turn);
		const steps = all.slice(-MOST_STEPS);
		const workers = history.workers.filter((worker) => worker.turn === turn);
		const isLatest = turn === turns.at(-1);
		const live = isLatest && session.status === "active";
		const scale = scaleOf({ steps, workers, history, live, isWhole: steps.length === all.length, isLatest });
		const follows = live && (this.#isFirst || this.#chart.scrollTop + this.#chart.clientHeight >= this.#chart.scrollHeight - NEAR);
		redraw(this.#chart, axis(scale), lane(workers, scale, (run) => this.#store.workerOf(run)), groups(steps).flatMap((group) => this.#rows(group, scale)));
		if (follows) this.#chart.scrollTop = this.#chart.scrollHeight;
		this.#isFirst = false;
		this.#drawDock();
		clearTimeout(this.#ticking);
		if (live) this.#ticking = setTimeout(this.#redraw, 1000);
		return undefined;
	}

	#rows(group, scale) {
		const choose = (target) => { this.#selected = target; this.#draw(); this.#goTo(target.step); };
		return stepRows(group, scale, { usage: this.#store.usageByStep?.get(group.step), selectedKey: this.#selected?.key, choose });
	}

	#drawNothing() {
		put(this.#dock);
		return put(this.#chart, this.#store.historyIsWhole ? blank("Nothing to draw yet", "Steps appear here once the run has begun, as long as the stream keeps its chunks.") : h("div.skel", h("span.sk.l"), h("span.sk.m")));
	}

	// Each turn restarts the stream; the runs tell which turn it is.
	#nameOf(turn) {
		const { run } = this.#store.history.workers.find((worker) => worker.turn === turn);
		return this.#store.turnOf(run) || turn;
	}

	#drawDock() {
		if (!this.#selected) return put(this.#dock, h("p.dim", "Choose a bar to see what it was."));
		const { name, step, tries = [] } = this.#selected;
		const facts = tries.map((each, place) => [tries.length === 1 ? "Time" : TRIES[place] ?? `Try ${place + 1}`, `${duration((each.to ?? Date.now()) - each.from)}, from ${at(each.from)}, ${outcome(each)}`]);
		return put(this.#dock, h("h2", h("span.mono.grow", shown(name)), h("button.btn.quiet.tiny.linkish", { type: "button", onclick: () => this.#goTo(step, { leave: true }) }, "Go to message")),
			facts.length ? h("dl.kv", facts.flatMap(([label, value]) => [h("dt", label), h("dd", shown(value))])) : null);
	}
}

function outcome(span) {
	if (span.lost) return "lost when its process stopped";
	if (span.state === "fail") return `failed: ${short(span.error ?? "", 120)}`;
	return { wait: "waits for a person", live: "running" }[span.state] ?? "finished";
}

function legend() {
	return h("span.legend", LEGEND.map(([kind, name]) => h("span", s("svg", { "aria-hidden": "true" }, s("rect", { class: kind === "gap" ? "gap" : `bar ${kind}`, width: "12", height: "8" })), name)));
}

function walk(chart, event) {
	const rows = [...chart.querySelectorAll("[role=option]")];
	const place = rows.indexOf(document.activeElement);
	if (event.key === "ArrowDown") (rows[place + 1] ?? rows[0])?.focus();
	else if (event.key === "ArrowUp") rows[place - 1]?.focus();
	else if (event.key === "Enter") document.activeElement.click();
	else return;
	event.preventDefault();
}
