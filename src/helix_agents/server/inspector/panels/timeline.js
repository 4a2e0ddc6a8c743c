// Timeline: worker lane on top, then steps with their model calls and tools as bars; crashes run through all rows.

import { choices, eachFrame, h, put, redraw as drawAgain, s } from "../dom.js";
import { blank } from "../parts/blank.js";
import { glyph } from "../status.js";
import { at, brief, duration, json, money, shown, short } from "../text.js";

const LOOK = { done: "completed", fail: "failed", live: "active", wait: "suspended_client_tool" };
const TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];
const MOST_STEPS = 60;
const NEAR = 32;
const ROOM_FOR_A_NAME = 0.16;

export function timelinePanel(store, { goTo }) {
	const turnField = h("select.field.small", { label: "Turn" });
	const legend = h("span.legend", [["model", "model"], ["", "tool"], ["live", "running"], ["wait", "waits"], ["fail", "failed"], ["gap", "no worker"]].map(([kind, name]) => h("span", s("svg", { "aria-hidden": "true" }, s("rect", { class: kind === "gap" ? "gap" : `bar ${kind}`, width: "12", height: "8" })), name)));
	const chart = h("div.tl.scroll", { role: "listbox", label: "Timeline", tabindex: "0" });
	const dock = h("section.dock.detail", { label: "Selected", "aria-live": "polite" });
	const node = h("div.pane", h("div.bar-top", turnField, h("span.grow"), legend), chart, dock);
	let turn = null;
	let selected = null;
	let ticking = 0;
	let isFirst = true;

	function draw() {
		const { history } = store;
		const turns = history.turns();
		turnField.hidden = !turns.length;
		if (!turns.length) {
			put(dock);
			return put(chart, store.historyIsWhole ? blank("Nothing to draw yet", "Steps appear here once the run has begun, as long as the stream keeps its chunks.") : h("div.skel", h("span.sk.l"), h("span.sk.m")));
		}
		if (turn === null || !turns.includes(turn)) turn = turns.at(-1);
		choices(turnField, turns.map((each) => [String(each), `Turn ${turnOf(each)}`]), String(turn));
		const all = history.steps.filter((step) => step.turn === turn);
		const steps = all.slice(-MOST_STEPS);
		const workers = history.workers.filter((worker) => worker.turn === turn);
		const live = store.session.status === "active";
		const from = Math.min(...(steps.length < all.length ? [] : workers.map((each) => each.from)), ...steps.map((each) => each.from));
		const rest = Math.max(history.lastAt, from);
		// A question may wait for days: its bar is open at the end instead of pressing everything else flat.
		const patience = steps.some((step) => step.spans.some((span) => span.state === "wait" && span.to === null)) ? Math.min(Date.now(), rest + (rest - from) * 0.3) : 0;
		const to = Math.max(from + 100, live ? Date.now() : patience, history.lastAt * Number(turn === turns.at(-1)), ...steps.map((each) => each.to ?? 0), ...workers.map((each) => each.to ?? 0));
		const scale = { from, to, x: (moment) => `${Math.max(0, (100 * (moment - from)) / (to - from))}%`, share: (a, b) => (b - Math.max(a, from)) / (to - from), width: (a, b) => `${Math.max(0.3, (100 * (b - Math.max(a, from))) / (to - from))}%`, cuts: history.cuts.filter((each) => each.from >= from), live };
		const follows = live && (isFirst || chart.scrollTop + chart.clientHeight >= chart.scrollHeight - NEAR);
		drawAgain(chart, axis(scale), lane(workers, scale, (run) => store.workerOf(run)), groups(steps).flatMap((group) => stepRows(group, scale)));
		if (follows) chart.scrollTop = chart.scrollHeight;
		isFirst = false;
		drawDock();
		clearTimeout(ticking);
		if (live) ticking = setTimeout(redraw, 1000);
		return undefined;
	}

	// A stream begins anew with each turn; the runs know which one it is.
	const turnOf = (each) => {
		const { run } = store.history.workers.find((worker) => worker.turn === each);
		return store.turnOf(run) || each;
	};

	function stepRows(group, scale) {
		const end = group.to ?? scale.to;
		const usage = store.usageByStep?.get(group.step);
		const rows = [row({ kind: "step", label: h("span.clip", `Step ${group.step}`), bars: [bar("span", group.from, end, scale)], time: end - group.from, tokens: usage?.tokens, cost: usage?.cost, target: { step: group.step, name: `Step ${group.step}`, spans: group.spans } }, scale)];
		for (const span of group.spans) {
			const tries = span.tries.map((each) => bar(each.lost ? "lost" : kindOf(each), each.from, each.to ?? scale.to, scale));
			const last = span.tries.at(-1);
			rows.push(row({ kind: `d${last.depth + 1}`, label: [glyph(LOOK[last.state]), h("span.mono", shown(span.name))], bars: tries, time: (last.to ?? scale.to) - last.from, tokens: last.kind === "model" && !last.who ? usage?.tokens : undefined, target: { step: group.step, name: span.name, tries: span.tries } }, scale));
		}
		return rows;
	}

	function row({ kind, label, bars, time, tokens, cost, target }, scale) {
		const key = `${target.step} ${target.name} ${target.tries?.[0]?.call ?? ""}`;
		const node = h("div", { class: `row ${kind}`, role: "option", tabindex: "-1", "data-key": key, "aria-selected": String(selected?.key === key) },
			h("span", label), track(bars, scale), h("span.r", duration(time)), h("span.r.tok", tokens === undefined ? "" : brief(tokens)), h("span.r.cost", money(cost)));
		node.addEventListener("click", () => { selected = { ...target, key }; draw(); goTo(target.step); });
		return node;
	}

	function drawDock() {
		if (!selected) return put(dock, h("p.dim", "Choose a bar to see what it was."));
		const facts = (selected.tries ?? []).map((each, place, { length }) => [length === 1 ? "Time" : ["First try", "Second try", "Third try"][place] ?? `Try ${place + 1}`, `${duration((each.to ?? Date.now()) - each.from)}, from ${at(each.from)}${each.lost ? ", lost when its process stopped" : each.state === "fail" ? `, failed: ${short(each.error ?? "", 120)}` : each.state === "wait" ? ", waits for a person" : each.state === "live" ? ", running" : ", finished"}`]);
		return put(dock, h("h2", h("span.mono.grow", shown(selected.name)), h("button.btn.quiet.tiny.linkish", { type: "button", onclick: () => goTo(selected.step, { leave: true }) }, "Go to message")),
			facts.length ? h("dl.kv", facts.flatMap(([name, value]) => [h("dt", name), h("dd", shown(value))])) : null);
	}

	chart.addEventListener("keydown", (event) => {
		const rows = [...chart.querySelectorAll("[role=option]")];
		const place = rows.indexOf(document.activeElement);
		if (event.key === "ArrowDown") (rows[place + 1] ?? rows[0])?.focus();
		else if (event.key === "ArrowUp") rows[place - 1]?.focus();
		else if (event.key === "Enter") document.activeElement.click();
		else return;
		event.preventDefault();
	});
	turnField.addEventListener("change", () => { turn = Number(turnField.value); selected = null; draw(); });
	const redraw = eachFrame(draw, 250);
	for (const topic of ["history", "session", "usage"]) store.on(topic, redraw);
	redraw();
	return { node, json: () => json(store.history.steps, 2), stop() { redraw.stop(); clearTimeout(ticking); } };
}

const kindOf = (span) => (span.state === "fail" ? "fail" : span.state === "wait" ? "wait" : span.state === "live" || (span.open && span.state !== "done") ? "live" : span.kind === "model" ? "model" : span.kind === "agent" ? "span" : "");

// A step that was begun twice is one group; a call that was begun twice is one row with two bars.
function groups(steps) {
	const found = new Map();
	for (const step of steps) {
		const group = found.get(step.step) ?? { step: step.step, from: step.from, to: step.to, spans: [] };
		found.set(step.step, group);
		group.from = Math.min(group.from, step.from);
		group.to = step.to;
		for (const span of step.spans) {
			const same = group.spans.find((each) => (span.call ? each.call === span.call : !each.call && each.who === span.who && each.tries.at(-1).lost));
			if (same) same.tries.push(span);
			else group.spans.push({ name: span.name, call: span.call, who: span.who, tries: [span] });
		}
	}
	return [...found.values()];
}

function bar(kind, from, to, scale) {
	return s("rect", { class: `bar ${kind}`, x: scale.x(from), width: scale.width(from, to) });
}

function gaps(scale, height) {
	return scale.cuts.map((each) => [s("rect.gap", { x: scale.x(each.from), width: scale.width(each.from, each.to), y: "0", height }), s("line.edge", { x1: scale.x(each.from), x2: scale.x(each.from), y1: "0", y2: height })]);
}

function ticks(scale) {
	const span = (scale.to - scale.from) / 1000;
	const every = TICKS.find((each) => span / each <= 5) ?? Math.ceil(span / 5 / 86400) * 86400;
	return Array.from({ length: Math.floor(span / every) + 1 }, (_, place) => place * every);
}

function track(bars, scale) {
	return s("svg.track", { "aria-hidden": "true" }, ticks(scale).map((each) => s("line.grid-l", { x1: scale.x(scale.from + each * 1000), x2: scale.x(scale.from + each * 1000), y1: "0", y2: "100%" })), gaps(scale, "100%"), bars, scale.live && s("line.now", { x1: "100%", x2: "100%", y1: "0", y2: "100%" }));
}

function axis(scale) {
	return h("div.row.axis", { role: "presentation" }, h("span", `from ${at(scale.from)}`), s("svg", { "aria-hidden": "true" }, ticks(scale).map((each) => s("text", { x: scale.x(scale.from + each * 1000), y: "18" }, each < 100 ? `${each} s` : duration(each * 1000)))), h("span.r", "time"), h("span.r.tok", "tok"), h("span.r.cost", "cost"));
}

function lane(workers, scale, workerOf) {
	const bars = workers.flatMap((each) => [bar("worker", each.from, each.to ?? scale.to, scale), scale.share(each.from, each.to ?? scale.to) > ROOM_FOR_A_NAME && s("text.in", { x: scale.x(each.from), y: "20", dx: "6" }, short(workerOf(each.run), 14))]);
	return h("div.row.lane", { role: "presentation" }, h("span", "Worker"), track(bars, scale));
}
