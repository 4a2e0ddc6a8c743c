// The dialog that starts a conversation: choose an agent, say something.

import { get, path, post } from "../api.js";
import { open } from "../dialogs.js";
import { button, choices, h, put } from "../dom.js";
import { go, sessionLink } from "../router.js";
import { shown } from "../text.js";

export async function startSession(chosen = "") {
	const agent = h("select.field", { label: "Agent" });
	const about = h("p.dim");
	const message = h("textarea.field", { rows: "3", label: "First message", placeholder: "First message", dir: "auto" });
	const title = h("input.field", { label: "Title", placeholder: "Title, optional", autocomplete: "off" });
	const failure = h("p.failure.red", { role: "alert", hidden: true });
	const fail = (text) => { failure.hidden = false; put(failure, shown(text)); };
	const start = button("Start", submit, { kind: "primary" });
	const node = open("New conversation", h("div.stack", agent, about, message, title, failure), [button("Cancel", () => node.close()), start]);

	async function submit() {
		if (!message.value.trim()) return message.focus();
		start.disabled = true;
		try {
			const metadata = title.value.trim() ? { title: title.value.trim() } : undefined;
			const { session_id: id } = await post(path("execute"), { agent_type: agent.value, message: message.value.trim(), metadata });
			node.close();
			return go(sessionLink(id));
		} catch (error) {
			start.disabled = false;
			return fail(error.message);
		}
	}
	message.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); submit(); } });
	message.focus();
	try {
		const { items } = await get("agents");
		const describe = () => put(about, shown(items.find((each) => each.name === agent.value)?.description ?? ""));
		choices(agent, items.map((each) => [each.name, each.name]), items.some((each) => each.name === chosen) ? chosen : items[0]?.name ?? "");
		agent.addEventListener("change", describe);
		describe();
		start.disabled = !items.length;
		if (!items.length) fail("The server has no agents: give the executor agents=[...].");
	} catch (error) { fail(error.message); }
}
