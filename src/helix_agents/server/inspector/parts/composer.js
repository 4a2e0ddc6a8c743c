// The box for the next message. During a turn it says why sending has to wait.

import { path, post } from "../api.js";
import { button, h, put, say } from "../dom.js";
import { isLive, waits } from "../status.js";
import { shown } from "../text.js";

export function composer(store) {
	const field = h("textarea.field", { rows: "1", label: "Message", dir: "auto" });
	const hint = h("p.dim", { role: "status" });
	const send = button("Send", submit, { kind: "primary", type: "submit" });
	const node = h("form.composer", h("div", field, send), hint);
	node.addEventListener("submit", (event) => { event.preventDefault(); });

	async function submit() {
		const message = field.value.trim();
		if (!message) return field.focus();
		send.disabled = true;
		try {
			const { status } = store.session;
			if (status === "interrupted" || status === "paused") await post(path("sessions", store.id, "resume"), { message });
			else await post("execute", { agent_type: store.session.agent_type, session_id: store.id, message });
			field.value = "";
			say("Message sent");
			draw();
		} catch (error) { put(hint, h("span.red", shown(error.message))); }
		finally { send.disabled = blocked() !== ""; }
		return undefined;
	}

	const blocked = () => {
		const { status } = store.session;
		if (isLive(status)) return "The turn is not over: send when it ends, or interrupt it.";
		if (waits(status)) return "The turn waits for an answer: give it above, or interrupt it.";
		return "";
	};
	const draw = () => {
		if (!store.session) return;
		field.placeholder = `Message ${store.session.agent_type}`;
		send.disabled = blocked() !== "";
		put(hint, blocked());
	};
	field.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); if (!send.disabled) submit(); } });
	field.addEventListener("input", () => { field.rows = Math.min(6, field.value.split("\n").length); });
	store.on("session", draw);
	draw();
	return { node, field };
}
