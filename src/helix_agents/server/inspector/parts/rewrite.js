// What can be done to an entry: edit what was said, ask for another reply, and step through the branches (‹ 2/3 ›).

import { button, h } from "../dom.js";

// `branches` diverge after a message; the arrows are on the entry that follows it.
export function rewrite(item, { branches, previous, edit, again, switchTo }) {
	if (!item.id) return null;
	const ways = branches.filter((each) => each.message_id === previous);
	const at = ways.findIndex((each) => each.is_active);
	const arrow = (text, label, way) => button(text, () => switchTo(way), { kind: "quiet tiny", label, disabled: !way });
	return h("span.rewrite",
		at >= 0 && [arrow("‹", "Earlier branch", ways[at - 1]), h("span.dim", `${at + 1}/${ways.length}`), arrow("›", "Later branch", ways[at + 1])],
		item.role === "user" && button("Edit", () => edit(item), { kind: "quiet tiny", label: "Edit message" }),
		item.role === "assistant" && !item.calls.size && button("Regenerate", () => again(item), { kind: "quiet tiny", label: "Regenerate reply" }));
}
