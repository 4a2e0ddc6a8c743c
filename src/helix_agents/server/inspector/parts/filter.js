// The dialog that adds a filter to the list: by agent, user or tag.

import { get } from "../api.js";
import { open } from "../dialogs.js";
import { button, h, put } from "../dom.js";

const KINDS = [["agent_type", "Agent"], ["user_id", "User"], ["tag", "Tag"]];

// Resolves to [name, value], or to null if the person changed their mind.
export function askFilter() {
	return new Promise((resolve) => {
		const known = h("datalist", { id: "known-agents" });
		const kind = h("select.field", { label: "Kind" }, KINDS.map(([name, label]) => h("option", { value: name }, label)));
		const field = h("input.field", { label: "Value", list: known.id, autocomplete: "off" });
		const accept = () => { const value = field.value.trim(); if (!value) return field.focus(); resolve([kind.value, value]); return node.close(); };
		const node = open("Add a filter", [h("div.pair", kind, field), known], [button("Cancel", () => node.close()), button("Filter", accept, { kind: "primary" })]);
		field.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); accept(); } });
		kind.addEventListener("change", () => { if (kind.value === "agent_type") field.setAttribute("list", known.id); else field.removeAttribute("list"); });
		node.addEventListener("close", () => resolve(null));
		field.focus();
		get("agents").then(({ items }) => put(known, items.map((agent) => h("option", { value: agent.name }))), () => {});
	});
}
