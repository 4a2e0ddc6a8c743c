// Usage: tokens, tools and cost, by step and for the session tree.

import { eachFrame, h, put } from "../dom.js";
import { blank, skeleton } from "../parts/blank.js";
import { brief, duration, json, money, number, plural, shown } from "../text.js";
import { columns, running, share } from "./charts.js";

export function usagePanel(store) {
	const body = h("div.use.scroll", { tabindex: "0", role: "region", label: "Usage" });
	const node = h("div.pane", body);
	function draw() {
		const found = store.usage;
		if (!found) return put(body, skeleton());
		const { tokens, tools, subagents, custom } = found;
		const steps = [...store.usageByStep].sort(([a], [b]) => a - b);
		const calls = Object.values(tools).reduce((sum, each) => sum + each.calls, 0);
		const failures = Object.values(tools).reduce((sum, each) => sum + each.failures, 0);
		const cost = found.cost ?? custom.cost;
		if (!tokens.total && !calls && !Object.keys(custom).length) return put(body, blank("Nothing used yet", "Tokens, tool calls and costs appear here as the run records them."));
		const spent = steps.map(([step, each]) => ({ label: String(step), value: each.cost }));
		return put(body,
			h("dl.sum",
				fact("Tokens", brief(tokens.total), [tokens.cached && `${brief(tokens.cached)} cached`, tokens.cache_written && `${brief(tokens.cache_written)} written`].filter(Boolean).join(", ")),
				cost === undefined ? null : fact("Cost", money(cost)),
				fact("Tool calls", number(calls), failures ? `${plural(failures, "failure")}` : ""),
				fact("Tool time", duration(Object.values(tools).reduce((sum, each) => sum + each.duration_ms, 0)))),
			steps.length > 0 && h("section", h("h2", "Tokens by step", legend([["model", "output"], ["", "prompt"], ["three", "cached"]])), columns(steps.map(([step, each]) => ({ label: String(step), parts: [["three", each.cached], ["", Math.max(0, each.prompt - each.cached)], ["model", each.completion]] })), { name: "Tokens by step" })),
			spent.some((each) => each.value) && h("section", h("h2", "Cost so far"), running(spent, { name: "Cost", label: (value) => money(value) || "$0" })),
			table("Tools", ["Tool", "", "Time", "Calls", "Failed"], timed(tools)),
			table("Sub-agents", ["Agent", "", "Time", "Runs", "Failed"], timed(subagents)),
			table("Models", ["Model", "Prompt", "Cached", "Output", "Total"], Object.entries(found.by_model).map(([name, each]) => [mono(name), brief(each.prompt), brief(each.cached), brief(each.completion), brief(each.total)])),
			table("Other", ["Name", "Amount"], Object.entries(custom).filter(([name]) => name !== "cost").map(([name, value]) => [mono(name), number(value)])));
	}

	const redraw = eachFrame(draw);
	store.on("usage", redraw);
	redraw();
	return { node, json: () => json(store.usage, 2), stop: () => redraw.stop() };
}

const fact = (name, value, more) => h("div", h("dt", name), h("dd", value, h("small", more ?? "")));
const mono = (text) => h("span.mono", shown(text));
const legend = (parts) => parts.map(([kind, name]) => h("span.key", h("i", { class: kind }), name));

function timed(by) {
	const most = Math.max(1, ...Object.values(by).map((each) => each.duration_ms));
	return Object.entries(by).sort(([, a], [, b]) => b.duration_ms - a.duration_ms).map(([name, each]) => [mono(name), share(each.duration_ms / most), duration(each.duration_ms), number(each.calls), number(each.failures)]);
}

function table(title, heads, rows) {
	if (!rows.length) return null;
	return h("section", h("h2", title), h("table", h("thead", h("tr", heads.map((name) => h("th", { scope: "col" }, name || h("span.sr", "Share of time"))))), h("tbody", rows.map((cells) => h("tr", cells.map((cell) => h("td", { class: cell instanceof SVGElement ? "w" : "" }, cell)))))));
}
