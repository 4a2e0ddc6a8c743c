// Placeholders: empty, broken, loading.

import { button, copyButton, h, icon, put } from "../dom.js";
import { json, shown } from "../text.js";

export function blank(title, text, { glyph, code, actions = [] } = {}) {
	return h("div.blank", glyph && icon(glyph), h("h2", title), text && h("p", shown(text)), code && h("pre.code", code), actions.length ? h("div.row", actions) : null);
}

export function broken(error, tryAgain) {
	const facts = { code: error.code ?? error.name, detail: error.message, ...error.body };
	return blank(
		error.status === 404 ? "Not found" : error.status === 401 ? "Sign in to see this" : "This did not work",
		error.message,
		{ glyph: "i-bolt", actions: [tryAgain && button("Try now", tryAgain, { kind: "primary" }), copyButton(() => json(facts, 2), "Copy details")].filter(Boolean) },
	);
}

export function skeleton(lines = ["s", "l", "m", "xl", "m", "l"]) {
	return h("div.skel", { "aria-busy": "true", label: "Loading" }, lines.map((kind) => h("span", { class: `sk ${kind}` })));
}

// Draws a skeleton only if the answer takes long enough to be noticed.
export async function loading(node, promise, skeletonNode = skeleton()) {
	const timer = setTimeout(() => put(node, skeletonNode), 200);
	try { return await promise; } finally { clearTimeout(timer); }
}
