// A question to a person: approve, approve with changes, reject, or answer for a client tool. The only amber box.

import { path, post } from "../api.js";
import { button, h, icon, put, say } from "../dom.js";
import { ago, json, shown, when } from "../text.js";

const isText = (value) => typeof value === "string";

// One field for each argument; a field that was edited says what it was.
function form(input, changed) {
	const values = new Map(Object.entries(input ?? {}));
	const node = h("div.form");
	for (const [name, before] of values) {
		const start = isText(before) ? before : json(before);
		const long = start.length > 60 || start.includes("\n");
		const field = h(long ? "textarea" : "input", { class: "field", rows: long ? "3" : undefined, value: start, label: name, dir: "ltr" });
		const was = h("p.was", { hidden: true });
		const read = () => {
			const edited = field.value !== start;
			field.classList.toggle("edited", edited);
			was.hidden = !edited;
			let value = field.value;
			field.setCustomValidity("");
			if (!isText(before)) { try { value = JSON.parse(field.value); } catch { field.setCustomValidity("This argument is JSON."); } }
			values.set(name, edited ? value : before);
			changed();
		};
		field.addEventListener("input", read);
		put(was, "was ", h("s", shown(start)), " ", button("Undo", () => { field.value = start; read(); }, { kind: "quiet tiny linkish" }));
		node.append(h("label", h("span.mono", shown(name)), h("span.grow", field)), was);
	}
	if (!values.size) node.append(h("p.dim", "No arguments."));
	return {
		node,
		value: () => Object.fromEntries(values),
		changes: () => [...values].filter(([name, value]) => value !== input[name]).length,
		isValid: () => [...node.querySelectorAll(".field")].every((field) => field.checkValidity()),
	};
}

function raw(input, changed) {
	const field = h("textarea.field.mono", { rows: "8", value: json(input ?? {}, 2), label: "Arguments as JSON", dir: "ltr" });
	let value = input ?? {};
	field.addEventListener("input", () => {
		try { value = JSON.parse(field.value); field.setCustomValidity(""); } catch { field.setCustomValidity("This is not JSON."); }
		changed();
	});
	return { node: h("div.form", field), value: () => value, changes: () => (json(value) === json(input ?? {}) ? 0 : 1), isValid: () => field.checkValidity() };
}

export function ask(question, { sessionId, answered = () => {} }) {
	const approval = question.kind === "approval";
	const failure = h("p.failure", { role: "alert", hidden: true });
	const reason = h("input.field.grow", { placeholder: approval ? "Reason, optional" : "Answer", label: approval ? "Reason" : "Answer" });
	const holder = h("div");
	const yes = button("", () => send(approval ? approve() : { result: reason.value }), { kind: "primary", key: approval ? "a" : undefined, "data-act": "approve" });
	const no = button(approval ? "Reject" : "Answer with an error", () => send(approval ? { approved: false, reason: reason.value || undefined } : { error: reason.value || "The person did not answer." }), { key: approval ? "r" : undefined, "data-act": "reject" });
	let editor;

	const changed = () => {
		const many = editor.changes();
		yes.firstChild.textContent = !approval ? "Answer" : many === 0 ? "Approve" : `Approve with ${many} ${many === 1 ? "change" : "changes"}`;
		yes.disabled = !editor.isValid();
	};
	const show = (make) => { editor = make(question.input, changed); put(holder, editor.node); changed(); };
	const approve = () => ({ approved: true, reason: reason.value || undefined, ...(editor.changes() ? { arguments: editor.value() } : {}) });

	async function send(answer) {
		yes.disabled = no.disabled = true;
		failure.hidden = true;
		try {
			const { receipt } = await post(path("sessions", sessionId, "tool-results"), { tool_call_id: question.tool_call_id, ...answer });
			say(receipt === "late" ? "The answer came too late; it was recorded." : "Answer sent");
			node.classList.add("answered");
			answered();
		} catch (error) {
			failure.hidden = false;
			put(failure, shown(error.message));
			yes.disabled = no.disabled = false;
		}
	}

	const kinds = h("div.switch", { role: "group", label: "How arguments are shown" });
	const choose = (chosen) => {
		put(kinds, [["Form", form], ["JSON", raw]].map(([name, make]) => h("button", { type: "button", "aria-pressed": String(make === chosen), onclick: () => choose(make) }, name)));
		show(chosen);
	};
	const waits = [question.since && [h("span.hide-s", "waits "), ago(question.since)], question.since && question.deadline_at && ", ", question.deadline_at && `until ${when(question.deadline_at)}`];
	yes.prepend(document.createTextNode(""));
	const node = h("section.ask", { label: `${approval ? "Approve" : "Answer"} ${question.tool_name}`, "data-call": question.tool_call_id },
		h("header", icon("s-wait", "g wait"), h("b", approval ? "Approve " : "Answer ", h("span.mono", shown(question.tool_name)), "?"), h("span.dim.grow", waits), kinds),
		holder, failure, h("footer", yes, no, reason));
	choose(form);
	return node;
}
