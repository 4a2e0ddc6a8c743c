// The stored conversation as entries to draw: one per speaker, with a step's calls and results in one box. Pure.
// It holds the messages from `first` up to `count`; earlier ones may be prepended.

import { parseJson, writeJson } from "../json.js";

const textOf = (content) => (typeof content === "string" ? content : writeJson(content, 2));

function resultOf(message) {
	const answeredBy = message.answered_by;
	if (message.success === false) return { state: "failed", error: textOf(message.content).replace(/^Error: /, ""), answeredBy };
	let result = message.content;
	try { result = parseJson(message.content); } catch { /* plain text is a result too */ }
	return { state: "done", result, answeredBy };
}

export class Story {
	#open = new Map();
	#results = new Map();

	constructor(first = 0) {
		this.items = [];
		this.first = first;
		this.count = first;
	}

	add(messages) {
		this.items.push(...this.#read(messages, this.count));
		this.count += messages.length;
	}

	// Assume that a commit's messages belong to its step until the checkpoint confirms it.
	tell(step, at) {
		const last = this.items.at(-1);
		if (last?.role === "assistant" && last.step === null) Object.assign(last, { step, at });
	}

	prepend(messages) {
		this.first -= messages.length;
		this.items.unshift(...this.#read(messages, this.first));
	}

	// The id of the message before an entry: null if there is none, undefined if it is not loaded.
	before(item) {
		const earlier = this.items.slice(0, this.items.indexOf(item)).findLast((each) => each.id);
		return earlier?.id ?? (this.first ? undefined : null);
	}

	// Whether the last reply still lacks results: a suspended step is stored before it is committed.
	get endsOpen() {
		return [...(this.items.at(-1)?.calls.values() ?? [])].some((call) => call.state === "asked");
	}

	#read(messages, from) {
		const items = [];
		messages.forEach((message, at) => {
			if (message.role === "tool") this.#settle(message);
			else items.push(this.#item(message, from + at));
		});
		return items;
	}

	#item(message, place) {
		const item = { key: `m${place}`, place, id: message.id, role: message.role, text: textOf(message.content ?? ""), thinking: message.thinking ?? "", interrupted: Boolean(message.interrupted), finish: message.finish_reason, calls: new Map(), step: null, at: null };
		for (const { id, name, arguments: input } of message.tool_calls ?? []) {
			const call = { id, name, input, state: "asked", item };
			item.calls.set(id, call);
			this.#open.set(id, call);
			if (this.#results.has(id)) this.#settle(this.#results.get(id));
		}
		return item;
	}

	// A result may be loaded before its call, which is further up.
	#settle(message) {
		const id = message.tool_call_id;
		const call = this.#open.get(id);
		if (!call) return this.#results.set(id, message);
		this.#results.delete(id);
		this.#open.delete(id);
		call.item.changed = true;
		return Object.assign(call, resultOf(message), { ask: undefined });
	}

	// Messages have no timestamp; their commit has one. `ordered`: by message count; `isWhole`:
	// nothing is missing before its first.
	place(ordered, isWhole) {
		let next = 0;
		let last = 0;
		for (const item of this.items) {
			while (next < ordered.length && ordered[next].message_count <= item.place) next += 1;
			const found = ordered[next];
			if (!found) break;
			if (next === 0 && !isWhole) continue;
			// A suspended step also has a checkpoint, with the message count of the step before it.
			const step = item.role === "assistant" ? Math.max(found.step_count, last + 1) : found.step_count;
			if (item.role === "assistant") last = step;
			item.changed ||= item.step !== step || item.at !== found.created_at;
			item.step = step;
			item.at = found.created_at;
		}
	}

	adopt(children) {
		for (const item of this.items) {
			for (const call of item.calls.values()) {
				const child = children.get(call.id);
				if (!child || call.child?.status === child.status) continue;
				call.child = child;
				item.changed = true;
			}
		}
	}
}
