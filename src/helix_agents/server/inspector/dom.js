// Builds elements. Text always goes in as text: nothing in this page ever parses a string as HTML.

const SVG = "http://www.w3.org/2000/svg";
const AS_PROPERTY = new Set(["value", "checked", "disabled", "open", "hidden"]);
const NAMES = { label: "aria-label" };

// `tag` may carry classes (`span.dim`); attributes may be left out.
function make(node, classes, props, children) {
	if (classes.length) node.setAttribute("class", classes.join(" "));
	if (props?.constructor === Object) setProps(node, props);
	else children.unshift(props);
	append(node, children);
	return node;
}

function setProps(node, props) {
	for (const [name, value] of Object.entries(props)) {
		if (value === undefined || value === null || value === false) continue;
		if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
		else if (AS_PROPERTY.has(name)) node[name] = value;
		else node.setAttribute(NAMES[name] ?? name, value === true ? "" : value);
	}
}

function append(node, children) {
	for (const child of children.flat(Infinity)) {
		if (child === undefined || child === null || child === false) continue;
		node.append(child instanceof Node ? child : String(child));
	}
}

export function h(tag, props, ...children) {
	const [name, ...classes] = tag.split(".");
	return make(document.createElement(name), classes, props, children);
}

export function s(tag, props, ...children) {
	const [name, ...classes] = tag.split(".");
	return make(document.createElementNS(SVG, name), classes, props, children);
}

export function icon(name, kind = "i") {
	return s("svg", { class: kind, "aria-hidden": "true", focusable: "false" }, s("use", { href: `#${name}` }));
}

export function put(node, ...children) {
	node.replaceChildren();
	append(node, children);
	return node;
}

export function button(label, onclick, { kind = "", glyph, key, ...more } = {}) {
	return h("button", { type: "button", class: `btn ${kind}`, onclick, ...more }, glyph && icon(glyph), label, key && h("kbd", { "aria-hidden": "true" }, key));
}

// Announces a sentence to screen readers, also if it is the same as the last one.
export function say(text) {
	const region = document.getElementById("said");
	region.textContent = "";
	requestAnimationFrame(() => { region.textContent = text; });
}

// Runs `act` at most once every `wait` milliseconds, however often it is requested; after `stop`, never again.
export function atMost(wait, act) {
	let timer = 0;
	let last = -wait;
	let stopped = false;
	const run = () => { timer = 0; last = performance.now(); act(); };
	const ask = () => { if (!stopped) timer ||= setTimeout(run, Math.max(0, last + wait - performance.now())); };
	ask.stop = () => { stopped = true; clearTimeout(timer); };
	return ask;
}

// Runs `act` again after it is done if it was requested in the meantime, never twice concurrently. All callers wait for the
// last run.
export function oneAtATime(act) {
	let running = null;
	let again = false;
	const run = async () => { do { again = false; await act(); } while (again); };
	return () => {
		again = running !== null;
		running ??= run().finally(() => { running = null; });
		return running;
	};
}

// Nothing is drawn between press and release: a click on an element that has moved would be lost.
let isPressed = false;
addEventListener("pointerdown", () => { isPressed = true; }, true);
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => { isPressed = false; }), true);
addEventListener("pointermove", (event) => { if (!event.buttons) isPressed = false; }, true);

// `atMost` for drawing: in an animation frame, and never while the page is hidden.
export function eachFrame(draw, wait = 0) {
	let frame = 0;
	const drawOnce = () => {
		frame = isPressed ? requestAnimationFrame(drawOnce) : 0;
		if (!frame) draw();
	};
	const ask = atMost(wait, () => { frame ||= requestAnimationFrame(drawOnce); });
	const { stop } = ask;
	ask.stop = () => { cancelAnimationFrame(frame); stop(); };
	return ask;
}

// Runs `act` once it has not been requested for a while.
export function after(wait, act) {
	let timer = 0;
	const ask = () => { clearTimeout(timer); timer = setTimeout(act, wait); };
	ask.stop = () => clearTimeout(timer);
	return ask;
}

// Changes the children of `node` and keeps the focus: on the same element if it is still there, else on the
// one with the same `data-key` or id, else on the one at the same position.
export function keepFocus(node, change) {
	const active = document.activeElement;
	if (active === node || !node.contains(active)) return change();
	const { key } = active.dataset;
	const article = active.closest("article")?.id;
	const place = [...node.querySelectorAll(active.tagName)].indexOf(active);
	const result = change();
	if (node.contains(document.activeElement) && document.activeElement !== node) return result;
	const again = active.isConnected ? active
		: (key && node.querySelector(`[data-key="${CSS.escape(key)}"]`))
		|| (article && document.getElementById(article))
		|| node.querySelectorAll(active.tagName)[place];
	again?.focus({ preventScroll: true });
	return result;
}

export const redraw = (node, ...children) => keepFocus(node, () => put(node, ...children));

// Sets the choices of a select, as [value, label]. An open select stays open if its choices are unchanged.
export function choices(select, list, value) {
	const same = select.options.length === list.length && list.every(([id, label], at) => select.options[at].value === id && select.options[at].text === label);
	if (!same) put(select, list.map(([id, label]) => h("option", { value: id }, label)));
	select.value = value;
}

export async function copy(text, what = "JSON") {
	try {
		await navigator.clipboard.writeText(text);
		say(`${what} copied`);
		return true;
	} catch {
		say("The browser did not allow copying");
		return false;
	}
}

export function copyButton(get, label = "Copy", what = "JSON") {
	const node = button(label, async () => {
		node.textContent = (await copy(get(), what)) ? "Copied" : "Not allowed";
		setTimeout(() => { node.textContent = label; }, 1200);
	}, { kind: "quiet tiny" });
	return node;
}
