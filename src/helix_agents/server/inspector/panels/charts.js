// Small charts, drawn by hand in SVG. Widths are percentages, so nothing is measured and nothing jumps.

import { s } from "../dom.js";
import { brief } from "../text.js";

const BASE = 104;
const TOP = 16;

function nice(value) {
	const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
	return [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= value) ?? value;
}

function grid(most, label) {
	return [0, 0.5, 1].map((part) => {
		const y = BASE - part * (BASE - TOP);
		return [s("line.grid-l", { x1: "0", x2: "100%", y1: y, y2: y }), s("text", { x: "-52", y: y + 4 }, label(most * part))];
	});
}

// Stacked columns; each is {label, parts: [[class, value], ...]}.
export function columns(list, { name, label = brief }) {
	const total = (each) => each.parts.reduce((sum, [, value]) => sum + value, 0);
	const most = nice(Math.max(1, ...list.map(total)));
	const room = 100 / list.length;
	const bars = list.flatMap((each, place) => {
		let y = BASE;
		const rects = each.parts.filter(([, value]) => value > 0).map(([kind, value]) => {
			const height = Math.max(1, ((BASE - TOP) * value) / most);
			y -= height;
			return s("rect", { class: `bar ${kind}`, x: `${place * room + room * 0.2}%`, width: `${room * 0.6}%`, y, height: Math.max(1, height - 1) });
		});
		const middle = `${(place + 0.5) * room}%`;
		const few = list.length <= 12 || place % Math.ceil(list.length / 12) === 0;
		return [rects, few && s("text", { x: middle, y: "124", "text-anchor": "middle" }, each.label), list.length <= 12 && s("text.val", { x: middle, y: y - 6, "text-anchor": "middle" }, label(total(each)))];
	});
	return s("svg.chart", { role: "img", label: `${name}: ${list.map((each) => `${each.label} ${label(total(each))}`).join(", ")}` }, grid(most, label), bars);
}

// A cumulative line; `limit` is a horizontal line.
export function running(list, { name, label, limit }) {
	let sum = 0;
	const points = list.map((each) => (sum += each.value));
	const most = nice(Math.max(limit ?? 0, ...points, 1e-6));
	const x = (place) => `${((place + 0.5) * 100) / list.length}%`;
	const y = (value) => BASE - ((BASE - TOP) * value) / most;
	const lines = points.slice(1).map((value, place) => s("line.line", { x1: x(place), y1: y(points[place]), x2: x(place + 1), y2: y(value) }));
	const end = points.at(-1);
	return s("svg.chart", { role: "img", label: `${name}: ${label(end)} at ${list.at(-1).label}` }, grid(most, label), lines, limit && s("line.limit", { x1: "0", x2: "100%", y1: y(limit), y2: y(limit) }), s("circle.end", { cx: x(points.length - 1), cy: y(end), r: "4" }), s("text.val", { x: x(points.length - 1), y: y(end) - 10, "text-anchor": "middle" }, label(end)));
}

export function share(part) {
	return s("svg", { "aria-hidden": "true" }, s("rect.bar", { width: `${Math.max(1, part * 100)}%`, height: "8" }));
}
