// Chunks: every retained chunk in order; consecutive deltas share a line. The selected line's JSON is below the list.

import { button, copyButton, eachFrame, h, put } from "../dom.js";
import { blank } from "../parts/blank.js";
import { Rows } from "../parts/rows.js";
import { box } from "../parts/value.js";
import { duration, json, number, plural, short, shown } from "../text.js";

const KINDS = { All: null, Text: /^(text_delta|thinking|output)$/, Tools: /^(tool_|client_tool|subagent_)/, State: /^(state_patch|step_committed)$/, Lifecycle: /^(run_|stream_|step_committed|error)/ };

export function chunksPanel(store) {
	const head = h("div.bar-top");
	const chips = h("div.chips.in", { role: "group", label: "Types" });
	const dock = h("section.dock", { label: "Selected chunk", hidden: true });
	let kind = "All";
	let lines = [];
	let follow = true;
	let selected = null;
	const rows = new Rows(24, (place) => line(lines[place]));
	rows.node.classList.add("ch");
	rows.node.setAttribute("role", "listbox");
	rows.node.setAttribute("aria-label", "Chunks");
	rows.node.tabIndex = 0;
	const empty = h("div");
	const node = h("div.pane", head, chips, rows.node, empty, dock);

	function line(each) {
		const first = store.history.lines[0]?.at ?? each.at;
		const marks = /^stream_/.test(each.type) ? "mark" : /request$/.test(each.type) ? "asking" : each.type === "step_committed" ? "rule" : "";
		const node = h("div", { class: `row ${marks}`, role: "option", "aria-selected": String(each.sequence === selected) }, h("span", each.sequence), h("span", duration(each.at - first)), h("span", each.type), h("span", { dir: "ltr" }, each.who && h("span.dim", `${short(each.who.split("/").at(-1), 20)}: `), shown(each.chunk ? (each.summary ??= summaryOf(each)) : summaryOf(each))));
		node.addEventListener("click", () => choose(each));
		return node;
	}

	rows.node.addEventListener("keydown", (event) => {
		const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
		if (!by || !lines.length) return;
		event.preventDefault();
		const place = selected === null ? lines.length : lines.findIndex((each) => each.sequence === selected);
		const next = Math.min(lines.length - 1, Math.max(0, place + by));
		choose(lines[next]);
		rows.reveal(next);
	});

	function choose(each) {
		selected = each.sequence;
		const text = each.chunk ? json(each.chunk, 2) : json({ type: each.type, chunks: each.count, sequence: [each.sequence, each.until], text: each.text }, 2);
		dock.hidden = false;
		put(dock, h("div.dock-1", h("b.grow", each.count > 1 ? `Chunks ${each.sequence} to ${each.until}` : `Chunk ${each.sequence}`), copyButton(() => text), button("Close", () => { dock.hidden = true; selected = null; draw(); }, { kind: "quiet tiny" })), box(text));
		draw();
	}

	function draw() {
		const { history } = store;
		lines = KINDS[kind] ? history.lines.filter((each) => KINDS[kind].test(each.type)) : history.lines;
		put(head, h("b", plural(history.chunks, "chunk")), h("span", history.missing ? `the first ${number(history.missing)} are not kept here` : "deltas in a row are one line"), h("span.grow"), button("Follow", () => { follow = !follow; draw(); }, { kind: "quiet tiny", "aria-pressed": String(follow) }));
		put(chips, Object.keys(KINDS).map((name) => h("button.chip", { type: "button", "aria-pressed": String(name === kind), onclick: () => { kind = name; draw(); } }, name)));
		put(empty, !lines.length && store.historyIsWhole && blank("No chunks", "The stream keeps its newest chunks; what is older than its retention is gone."));
		rows.set(lines.length, { follow });
	}

	const redraw = eachFrame(draw, 100);
	store.on("history", redraw);
	redraw();
	return { node, follow() { follow = !follow; draw(); }, json: () => json(lines.map((each) => each.chunk ?? each), 2), stop: () => redraw.stop() };
}

function summaryOf(each) {
	const { chunk } = each;
	if (!chunk) return each.count > 1 ? `${each.count} chunks, ${json(short(each.text, 80))}` : json(short(each.text, 100));
	switch (each.type) {
		case "tool_start": return `${chunk.tool_name} ${short(json(chunk.arguments), 120)}`;
		case "tool_end": return `${chunk.tool_name} ${chunk.success ? "ok" : `failed: ${short(chunk.error ?? "", 80)}`}`;
		case "tool_approval_request":
		case "tool_outcome_request":
		case "client_tool_request": return `${chunk.tool_name} ${short(json(chunk.input), 120)}`;
		case "state_patch": return chunk.patches.length === 1 ? `${chunk.patches[0].op} ${chunk.patches[0].path}` : plural(chunk.patches.length, "patch", "patches");
		case "step_committed": return `step ${chunk.step_count}${chunk.warnings?.length ? `, ${plural(chunk.warnings.length, "warning")}` : ""}`;
		case "stream_rewound": return `back to step ${chunk.step_count}`;
		case "subagent_start":
		case "subagent_end": return chunk.sub_session_id;
		case "output": return short(json(chunk.output), 120);
		case "error": return chunk.error;
		default: return short(json(Object.fromEntries(Object.entries(chunk).filter(([name]) => !["type", "timestamp", "agent_id", "agent_type", "step"].includes(name)))), 140);
	}
}
