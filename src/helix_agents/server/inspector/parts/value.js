// A value from a model or a tool: folded when long, paged when huge, copied by a click.

import { showText } from "../dialogs.js";
import { button, copyButton, h, put } from "../dom.js";
import { json, shown, short, size } from "../text.js";

const FOLD_ABOVE = 600;
const PAGE_ABOVE = 64 * 1024;

export const asText = (value) => (typeof value === "string" ? value : json(value, 2));

export function io(label, value) {
	const text = asText(value);
	return h("div.io", h("p", h("span.grow", label), copyButton(() => text)), box(text));
}

export function box(text) {
	const pre = h("pre.value", { dir: "ltr", tabindex: "0" });
	if (text.length <= FOLD_ABOVE && text.split("\n").length <= 10) return put(pre, shown(text));
	pre.classList.add("folded");
	put(pre, shown(text.slice(0, 2000)));
	const more = button("Show all", () => {
		if (text.length > PAGE_ABOVE) return showText(size(text.length), text, PAGE_ABOVE);
		const folded = pre.classList.toggle("folded");
		put(pre, shown(folded ? text.slice(0, 2000) : text));
		more.textContent = folded ? "Show all" : "Show less";
		return undefined;
	}, { kind: "quiet tiny linkish" });
	return h("div.fold", pre, h("p.more", more, h("span.dim", size(text.length))));
}

// A call is summarized by its first argument; the rest is one click away.
export function gist(input) {
	if (input === undefined || input === null) return "";
	const values = typeof input === "object" ? Object.values(input) : [input];
	return short(values.length === 1 ? json(values[0]) : values.length ? json(input) : "", 90);
}
