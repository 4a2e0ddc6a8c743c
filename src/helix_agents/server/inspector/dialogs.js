// Dialogs: a question with two answers, a text to fill in, the list of keys, the token.

import { button, h, icon } from "./dom.js";
import { HELP } from "./keys.js";

export function open(title, body, footer) {
	const close = button("", () => node.close(), { kind: "quiet icon", label: "Close" });
	close.append(icon("i-x"));
	const node = h("dialog", { label: title }, h("header", h("span.grow", title), close), h("div", body), footer && h("footer", footer));
	node.addEventListener("close", () => node.remove());
	document.body.append(node);
	node.showModal();
	return node;
}

// Resolves to true only if the person pressed the button that says what will happen.
export function confirm(title, text, { yes, no = "Keep it", danger = false }) {
	return new Promise((resolve) => {
		const accept = button(yes, () => { resolve(true); node.close(); }, { kind: danger ? "danger" : "primary" });
		const node = open(title, h("p", text), [button(no, () => node.close()), accept]);
		node.addEventListener("close", () => resolve(false));
		(danger ? node.querySelector("footer .btn") : accept).focus();
	});
}

export function prompt(title, { label, value = "", yes, type = "text", hint }) {
	return new Promise((resolve) => {
		const field = h("input.field", { type, value, label: label, placeholder: label, autocomplete: "off" });
		const accept = () => { resolve(field.value); node.close(); };
		const node = open(title, [hint && h("p", hint), field], [button("Cancel", () => node.close()), button(yes, accept, { kind: "primary" })]);
		field.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); accept(); } });
		node.addEventListener("close", () => resolve(null));
		field.focus();
	});
}

export function showKeys() {
	open("Keyboard", h("div.keys", HELP.map(([what, keys]) => h("div", h("span", what), keys.map((key) => h("kbd", key))))));
}

export function showText(title, text, pageSize) {
	const body = h("pre.pages", { tabindex: "0" });
	let page = 0;
	const last = Math.max(0, Math.ceil(text.length / pageSize) - 1);
	const label = h("span.dim.grow");
	const turn = (by) => {
		page = Math.min(last, Math.max(0, page + by));
		body.textContent = text.slice(page * pageSize, (page + 1) * pageSize);
		label.textContent = `Page ${page + 1} of ${last + 1}`;
	};
	turn(0);
	open(title, body, [label, button("Before", () => turn(-1)), button("After", () => turn(1))]);
}
