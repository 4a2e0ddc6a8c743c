// Health: the vitals, every worker, and the number of sessions by status.

import { h, put } from "../dom.js";
import { blank } from "../parts/blank.js";
import { vitals } from "../parts/vitals.js";
import { mark } from "../status.js";
import { ago, number, shown } from "../text.js";

export function health(view, { stats }) {
	const summary = vitals(stats);
	const rest = h("div");
	document.title = "Health · helix";
	put(view, h("div.page", h("div.title", h("h1", "Health")), summary.node, rest));
	const draw = () => {
		const now = stats.value;
		if (stats.isRefused) return put(rest, blank("Only for admins", "Your token does not open figures about all sessions.", { glyph: "i-bolt" }));
		if (!now && !stats.isAway) return put(rest);
		if (!now) return put(rest, blank("The server does not respond", "This page asks again every few seconds.", { glyph: "i-bolt" }));
		return put(rest, workers(now.workers), statuses(now.by_status));
	};
	stats.listeners.add(draw);
	draw();
	return { stop() { summary.stop(); stats.listeners.delete(draw); } };
}

function workers(list) {
	const rows = list.map((each) => h("tr", h("td.mono", shown(each.name)), h("td.r", Array.isArray(each.running) ? each.running.length : each.running), h("td.r", each.at_once), h("td.r", ago(each.seen_at))));
	return h("section.facts-table", h("h2", "Workers"),
		list.length ? h("table", h("thead", h("tr", ["Name", "Running", "Places", "Last seen"].map((name, at) => h("th", { scope: "col", class: at ? "r" : "" }, name)))), h("tbody", rows))
			: h("p.dim", "No worker is registered: the server runs what it is sent. To start one: ", h("code", "helix worker module:executor")));
}

function statuses(by) {
	return h("section.facts-table", h("h2", "Sessions by status"),
		h("table", h("tbody", Object.entries(by).map(([status, count]) => h("tr", h("td", mark(status)), h("td.r", number(count)))))));
}
