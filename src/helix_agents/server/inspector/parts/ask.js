// A question to a person: approve, approve with changes, reject, answer for a client tool, or say whether a call
// that was interrupted took effect. The only amber box.

import { path, post } from "../api.js";
import { button, h, icon, put, say } from "../dom.js";
import { ago, json, shown, when } from "../text.js";
import { asJson, fields, reading } from "./arguments.js";

const MODES = [["Read", reading], ["Edit", fields], ["JSON", asJson]];

// Identifies a question: a session that was deleted and recreated may reuse call ids.
export const questionKey = (each) => each.approval_id ?? json([each.session_id, each.tool_call_id, each.input]);

export function ask(question, { sessionId, answered = () => {} }) {
	if (question.kind === "outcome") return askOutcome(question, { sessionId, answered });
	const approval = question.kind === "approval";
	const failure = h("p.failure", { role: "alert", hidden: true });
	const reason = h("input.field.grow", { placeholder: approval ? "Reason, optional" : "Answer", label: approval ? "Reason" : "Answer" });
	const yes = button("", () => send(approval ? approve() : { result: question.question ? asked(reason.value) : reason.value }), { kind: "primary", key: approval ? "a" : undefined, "data-act": "approve" });
	const no = button(approval ? "Reject" : "Answer with an error", () => send(approval ? { approved: false, reason: reason.value || undefined } : { error: reason.value || "The person did not answer." }), { key: approval ? "r" : undefined, "data-act": "reject" });
	yes.prepend(document.createTextNode(""));
	const label = (many) => { yes.firstChild.textContent = !approval ? "Answer" : many === 0 ? "Approve" : `Approve with ${many} ${many === 1 ? "change" : "changes"}`; };
	const editor = switchable(question.input, approval ? MODES : MODES.slice(0, 1), () => { label(editor.now.changes()); yes.disabled = !editor.now.isValid(); });
	const approve = () => ({ approved: true, reason: reason.value || undefined, ...(editor.now.changes() ? { arguments: editor.now.value() } : {}) });
	const target = question.approval_id ? { approval_id: question.approval_id } : { tool_call_id: question.tool_call_id };

	async function send(answer) {
		yes.disabled = no.disabled = true;
		failure.hidden = true;
		try {
			const { receipt } = await post(path("sessions", sessionId, "tool-results"), { ...target, ...answer });
			say(receipt === "late" ? "The answer came too late; it was recorded." : "Answer sent");
			node.classList.add("answered");
			answered();
		} catch (error) {
			failure.hidden = false;
			put(failure, shown(error.message));
			yes.disabled = no.disabled = false;
		}
	}

	label(0);
	const node = h("section.ask", { label: `${approval ? "Approve" : "Answer"} ${question.tool_name}`, "data-question": questionKey(question) },
		h("header", icon("s-wait", "g wait"), h("b", approval ? "Approve " : "Answer ", h("span.mono", shown(question.tool_name)), "?"), h("span.dim.grow", since(question)), editor.modes),
		editor.node, question.question && reading(question.question).node, failure, h("footer", yes, no, reason));
	return node;
}

// The answer to a tool's question is JSON, such as {"size": 3}; anything else is text.
function asked(text) {
	try { return JSON.parse(text); } catch { return text; }
}

// An interrupted call: whether it took effect. No shortcut keys: a reflex must not repeat a payment.
function askOutcome(question, { sessionId, answered }) {
	const failure = h("p.failure", { role: "alert", hidden: true });
	const result = h("input.field.grow", { placeholder: "Result, if it happened; or why nobody knows", label: "Result" });
	const buttons = [
		button("It happened", () => send({ happened: true, ...(result.value ? { result: result.value } : {}) }), { "data-act": "happened" }),
		button("It did not: run it", () => send({ happened: false }), { "data-act": "not-happened" }),
		button("Nobody knows", () => send({ happened: null, reason: result.value || undefined }), { "data-act": "unknown" }),
	];

	async function send(answer) {
		for (const each of buttons) each.disabled = true;
		failure.hidden = true;
		try {
			await post(path("sessions", sessionId, "tool-results"), { approval_id: question.approval_id, ...answer });
			say("Answer sent");
			node.classList.add("answered");
			answered();
		} catch (error) {
			failure.hidden = false;
			put(failure, shown(error.message));
			for (const each of buttons) each.disabled = false;
		}
	}

	const node = h("section.ask", { label: `Did ${question.tool_name} take effect?`, "data-question": questionKey(question) },
		h("header", icon("s-wait", "g wait"), h("b", "Did ", h("span.mono", shown(question.tool_name)), " take effect?"), h("span.dim.grow", since(question))),
		reading(question.input).node, h("p.dim", "It was cut off, so nobody knows. Look up ", h("span.mono", shown(question.effect_key ?? "")), " before you answer."), failure, h("footer", buttons, result));
	return node;
}

// One editor at a time; another mode starts from the requested arguments.
function switchable(input, modes, changed) {
	const node = h("div");
	const group = h("div.switch", { role: "group", label: "How arguments are shown", hidden: modes.length < 2 });
	const made = { node, modes: group, now: null };
	const choose = (chosen) => {
		put(group, modes.map(([name, make]) => h("button", { type: "button", "aria-pressed": String(make === chosen), onclick: () => { choose(make); changed(); } }, name)));
		made.now = chosen(input, changed);
		put(node, made.now.node);
	};
	choose(modes[0][1]);
	return made;
}

function since(question) {
	return [question.since && [h("span.hide-s", "waits "), ago(question.since)], question.since && question.deadline_at && ", ", question.deadline_at && `until ${when(question.deadline_at)}`];
}
