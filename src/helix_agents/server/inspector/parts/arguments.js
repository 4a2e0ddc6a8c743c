// The arguments of a call that a person decides about: to read, to edit one by one, to edit as JSON.
//
// An editor has a `node`, `value()`, `changes()` (how many arguments differ from the requested ones) and `isValid()`.

import { button, h, put } from "../dom.js";
import { parseJson } from "../json.js";
import { escaped, hidesSomething, json, plural, shown, shownInFull } from "../text.js";

const isText = (value) => typeof value === "string";
const textOf = (value) => (isText(value) ? value : json(value, 2));
const linesOf = (text) => text.split(/\r\n|[\n\r\u2028\u2029]/).length;
const isLong = (text) => text.length > 60 || text.includes("\n");

export function reading(input) {
	const all = Object.entries(input ?? {});
	const argument = ([name, value]) => {
		const text = textOf(value);
		const lines = linesOf(text);
		return h("div.argument", h("p", h("span.mono", shown(name)), lines > 1 && h("span.dim", plural(lines, "line"))), h("pre.value", { dir: "ltr", tabindex: "0" }, shownInFull(text)));
	};
	return { node: h("div.form", all.length ? all.map(argument) : h("p.dim", "No arguments.")), value: () => input, changes: () => 0, isValid: () => true };
}

// One field for each argument. An edited one shows its old value; a preview shows what a field cannot.
export function fields(input, changed) {
	const values = new Map(Object.entries(input ?? {}));
	const node = h("div.form");
	for (const [name, before] of values) node.append(...field(name, before, (value) => { values.set(name, value); changed(); }));
	if (!values.size) node.append(h("p.dim", "No arguments."));
	return {
		node,
		value: () => Object.fromEntries(values),
		changes: () => [...values].filter(([name, value]) => value !== input[name]).length,
		isValid: () => [...node.querySelectorAll(".field")].every((each) => each.checkValidity()),
	};
}

function field(name, before, set) {
	const start = isText(before) ? before : json(before);
	const box = h(isLong(start) ? "textarea" : "input", { class: "field", rows: isLong(start) ? String(Math.min(12, linesOf(start) + 1)) : undefined, value: start, label: name, dir: "ltr" });
	const was = h("p.was", { hidden: true }, "was ", h("s", shownInFull(start)), " ", button("Undo", () => { box.value = start; read(); }, { kind: "quiet tiny linkish" }));
	const preview = h("pre.value.preview", { dir: "ltr" });
	// A field normalizes some texts (line ends, for example), so an unedited argument keeps its original value.
	const untouched = box.value;
	const draw = (text) => { preview.hidden = !hidesSomething(text); put(preview, shownInFull(text)); };
	const read = () => {
		const edited = box.value !== untouched && box.value !== start;
		box.classList.toggle("edited", edited);
		was.hidden = !edited;
		box.setCustomValidity("");
		let value = box.value;
		if (!isText(before)) { try { value = parseJson(box.value); } catch { box.setCustomValidity("This argument is JSON."); } }
		draw(edited ? box.value : start);
		set(edited ? value : before);
	};
	box.addEventListener("input", read);
	draw(start);
	return [h("label", h("span.mono", shown(name)), h("span.grow", box)), preview, was];
}

export function asJson(input, changed) {
	const start = json(input ?? {});
	const box = h("textarea.field.mono", { rows: "8", value: escaped(json(input ?? {}, 2)), label: "Arguments as JSON", dir: "ltr" });
	let value = input ?? {};
	box.addEventListener("input", () => {
		box.setCustomValidity("");
		try { value = parseJson(box.value); } catch { box.setCustomValidity("This is not JSON."); }
		changed();
	});
	return { node: h("div.form", box), value: () => value, changes: () => (json(value) === start ? 0 : 1), isValid: () => box.checkValidity() };
}
