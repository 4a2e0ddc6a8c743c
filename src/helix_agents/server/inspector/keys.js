// Keyboard shortcuts. A view's map overrides the page's; none apply while a person types.

const layers = [];

export function useKeys(map) {
	layers.push(map);
	return () => { const place = layers.indexOf(map); if (place >= 0) layers.splice(place, 1); };
}

const isTyping = (node) => node.matches?.("input:not([type=range]), textarea, select, [contenteditable]");

document.addEventListener("keydown", (event) => {
	if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
	if (isTyping(event.target)) {
		if (event.key === "Escape") event.target.blur();
		return;
	}
	if (document.querySelector("dialog[open]")) return;
	if (event.key === "Enter" && event.target.matches("button, a, summary, [role=option], [role=treeitem]")) return;
	for (const map of [...layers].reverse()) {
		if (map[event.key]) {
			event.preventDefault();
			map[event.key](event);
			return;
		}
	}
});

export const HELP = [
	["Next, previous", ["j", "k"]], ["Open", ["Enter"]], ["Back to the list", ["u"]], ["Filter", ["/"]], ["New conversation", ["n"]],
	["Next that waits", ["w"]], ["Approve, reject", ["a", "r"]], ["Tabs", ["1", "2", "3", "4"]], ["Checkpoint before, after", ["[", "]"]],
	["Fold, unfold", ["x"]], ["Copy as JSON", ["c"]], ["Copy link", ["l"]], ["Follow the stream", ["f"]],
	["Interrupt", ["i"]], ["Light or dark", ["t"]], ["This page", ["?"]],
];
