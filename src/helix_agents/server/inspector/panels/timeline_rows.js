// What the timeline draws: the axis, the lane of workers, and a row for each step and each of its calls. Pure except for
// the elements; `scaleOf` maps times to positions.

import { h, s } from "../dom.js";
import { glyph } from "../status.js";
import { at, brief, duration, money, shown, short } from "../text.js";

const LOOK = { done: "completed", fail: "failed", live: "active", wait: "suspended_client_tool" };
const TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];
const ROOM_FOR_A_NAME = 0.16;

const kindOf = (span) => (span.state === "fail" ? "fail" : span.state === "wait" ? "wait" : span.state === "live" || (span.open && span.state !== "done") ? "live" : span.kind === "model" ? "model" : span.kind === "agent" ? "span" : "");
const waits = (steps) => steps.some((step) => step.spans.some((span) => span.state === "wait" && span.to === null));

export function scaleOf({ steps, workers, history, live, isWhole, isLatest }) {
	const from = Math.min(...(isWhole ? workers.map((each) => each.from) : []), ...steps.map((each) => each.from));
	const rest = Math.max(history.lastAt, from);
	// A question may wait for days: its bar is open-ended, so that it does not squeeze everything else.
	const patience = waits(steps) ? Math.min(Date.now(), rest + (rest - from) * 0.3) : 0;
	const to = Math.max(from + 100, live ? Date.now() : patience, isLatest ? history.lastAt : 0, ...steps.map((each) => each.to ?? 0), ...workers.map((each) => each.to ?? 0));
	const share = (a, b) => (b - Math.max(a, from)) / (to - from);
	return { from, to, live, share, x: (moment) => `${Math.max(0, 100 * share(from, moment))}%`, width: (a, b) => `${Math.max(0.3, 100 * share(a, b))}%`, cuts: history.cuts.filter((each) => each.from >= from) };
}

// `usage`: the step's usage; `choose` gets the item that a row represents.
export function stepRows(group, scale, { usage, selectedKey, choose }) {
	const end = group.to ?? scale.to;
	const make = (look) => row({ ...look, selectedKey, choose }, scale);
	const step = make({ kind: "step", label: h("span.clip", `Step ${group.step}`), bars: [bar("span", group.from, end, scale)], time: end - group.from, tokens: usage?.tokens, cost: usage?.cost, target: { step: group.step, name: `Step ${group.step}`, spans: group.spans } });
	return [step, ...group.spans.map((span) => {
		const tries = span.tries.map((each) => bar(each.lost ? "lost" : kindOf(each), each.from, each.to ?? scale.to, scale));
		const last = span.tries.at(-1);
		return make({ kind: `d${last.depth + 1}`, label: [glyph(LOOK[last.state]), h("span.mono", shown(span.name))], bars: tries, time: (last.to ?? scale.to) - last.from, tokens: last.kind === "model" && !last.who ? usage?.tokens : undefined, target: { step: group.step, name: span.name, tries: span.tries } });
	})];
}

function row({ kind, label, bars, time, tokens, cost, target, selectedKey, choose }, scale) {
	const key = `${target.step} ${target.name} ${target.tries?.[0]?.call ?? ""}`;
	return h("div", { class: `row ${kind}`, role: "option", tabindex: "-1", "data-key": key, "aria-selected": String(selectedKey === key), onclick: () => choose({ ...target, key }) },
		h("span", label), track(bars, scale), h("span.r", duration(time)), h("span.r.tok", tokens === undefined ? "" : brief(tokens)), h("span.r.cost", money(cost)));
}

// A step that started twice is one group; a call that started twice is one row with two bars.
export function groups(steps) {
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

export function axis(scale) {
	return h("div.row.axis", { role: "presentation" }, h("span", `from ${at(scale.from)}`), s("svg", { "aria-hidden": "true" }, ticks(scale).map((each) => s("text", { x: scale.x(scale.from + each * 1000), y: "18" }, each < 100 ? `${each} s` : duration(each * 1000)))), h("span.r", "time"), h("span.r.tok", "tok"), h("span.r.cost", "cost"));
}

export function lane(workers, scale, workerOf) {
	const bars = workers.flatMap((each) => [bar("worker", each.from, each.to ?? scale.to, scale), scale.share(each.from, each.to ?? scale.to) > ROOM_FOR_A_NAME && s("text.in", { x: scale.x(each.from), y: "20", dx: "6" }, short(workerOf(each.run), 14))]);
	return h("div.row.lane", { role: "presentation" }, h("span", "Worker"), track(bars, scale));
}
