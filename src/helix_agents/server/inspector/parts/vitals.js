// Four facts about the backend: whether it responds, its workers, what is pending, what was recovered.

import { h, redraw } from "../dom.js";
import { link } from "../router.js";
import { ago, number } from "../text.js";

export function vitals(stats) {
	const node = h("dl.vitals", { label: "Health" });
	const fact = (name, value, more, dot) => h("div", h("dt", name), h("dd", dot && h("span", { class: `dot ${dot}` }), value, more && h("span.dim", more)));
	const draw = () => {
		const now = stats.value;
		node.hidden = stats.isRefused;
		if (!now) return redraw(node, stats.isAway ? fact("Backend", "no answer", "", "off") : fact("Backend", "–"), fact("Workers", "–"), fact("Waiting for people", "–"), fact("Recovered today", "–"));
		const places = now.workers.reduce((sum, each) => sum + each.at_once, 0);
		const taken = now.workers.reduce((sum, each) => sum + (Array.isArray(each.running) ? each.running.length : each.running), 0);
		return redraw(node,
			fact("Backend", now.backend.name, now.backend.latency_ms === null ? "" : `${Math.round(now.backend.latency_ms)} ms`, "on"),
			fact("Workers", now.workers.length, now.workers.length ? `${taken} of ${places} places taken` : "runs stay in the server"),
			fact("Waiting for people", now.waiting ? h("a.linkish", { href: link(["waiting"]) }, number(now.waiting)) : "0", now.oldest_waiting_since ? `oldest ${ago(now.oldest_waiting_since)}` : ""),
			fact("Recovered today", number(now.recovered_today ?? 0)));
	};
	stats.listeners.add(draw);
	draw();
	return { node, stop: () => stats.listeners.delete(draw) };
}
