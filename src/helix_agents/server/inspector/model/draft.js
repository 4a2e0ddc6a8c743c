// The open step, built from the chunks of a step that is not committed yet. Pure; feed it chunks in order, read `steps`.
//
// A step is {step, agent, text, thinking, thoughtAt, calls: Map(id -> call), firstAt, lastAt, done}. A call is
// {id, name, input, inputText, state, result, error, startedAt, endedAt, ask, child}. A child is another draft.

export class Draft {
	// `children`: known sub-sessions, whose calls may have started before the first chunk read here.
	constructor(children = []) {
		this.children = children;
		this.steps = [];
		this.notes = [];
	}

	get isEmpty() {
		return !this.steps.length && !this.notes.length;
	}

	add(sequence, chunk) {
		if (chunk.sub_session_id && chunk.type !== "subagent_start" && chunk.type !== "subagent_end") return this.#addToChild(sequence, chunk);
		const act = ACTS[chunk.type];
		if (act) act(this, chunk, sequence);
	}

	step(chunk) {
		let step = this.steps.at(-1);
		if (!step || step.done || step.step !== chunk.step) {
			step = { step: chunk.step, agent: chunk.agent_type, text: "", thinking: "", calls: new Map(), firstAt: chunk.timestamp, lastAt: chunk.timestamp, done: false };
			this.steps.push(step);
		}
		step.lastAt = chunk.timestamp;
		return step;
	}

	call(chunk) {
		const step = this.step(chunk);
		let call = step.calls.get(chunk.tool_call_id);
		if (!call) {
			call = { id: chunk.tool_call_id, name: chunk.tool_name ?? "", inputText: "", input: undefined, state: "asked", startedAt: chunk.timestamp };
			step.calls.set(call.id, call);
		}
		if (chunk.tool_name) call.name = chunk.tool_name;
		return call;
	}

	// All calls, including those of sub-agents.
	* calls() {
		for (const step of this.steps) {
			for (const call of step.calls.values()) {
				yield call;
				if (call.child) yield* call.child.draft.calls();
			}
		}
	}

	#addToChild(sequence, chunk) {
		const isAbove = (id) => id === chunk.sub_session_id || chunk.sub_session_id.startsWith(`${id}/`);
		let call = this.steps.flatMap((step) => [...step.calls.values()]).find((each) => each.child && isAbove(each.child.id));
		if (!call) {
			const ref = this.children.find((each) => isAbove(each.sub_session_id));
			if (!ref) return;
			call = this.call({ ...chunk, tool_call_id: ref.parent_tool_call_id, tool_name: ref.name ?? ref.agent_type });
			Object.assign(call, { state: "running", child: { id: ref.sub_session_id, agent: ref.agent_type, status: "active", draft: new Draft() } });
		}
		call.child.draft.add(sequence, call.child.id === chunk.sub_session_id ? { ...chunk, sub_session_id: undefined, step: chunk.sub_step ?? chunk.step } : chunk);
	}
}

const ACTS = {
	text_delta: (draft, chunk) => { draft.step(chunk).text += chunk.delta; },
	thinking: (draft, chunk) => {
		const step = draft.step(chunk);
		step.thinking += chunk.content;
		step.thoughtAt ??= chunk.timestamp;
		step.thoughtUntil = chunk.timestamp;
	},
	tool_arg_delta: (draft, chunk) => { draft.call(chunk).inputText += chunk.delta; },
	tool_start: (draft, chunk) => Object.assign(draft.call(chunk), { input: chunk.arguments, state: "running", startedAt: chunk.timestamp }),
	tool_end: (draft, chunk) => Object.assign(draft.call(chunk), { state: chunk.success ? "done" : "failed", result: chunk.result, error: chunk.error, endedAt: chunk.timestamp, ask: undefined }),
	tool_approval_request: (draft, chunk) => ask(draft, chunk, "approval"),
	client_tool_request: (draft, chunk) => ask(draft, chunk, "client"),
	tool_outcome_request: (draft, chunk) => ask(draft, chunk, "outcome"),
	subagent_start: (draft, chunk) => { draft.call(chunk).child ??= { id: chunk.sub_session_id, agent: chunk.agent_type, status: "active", draft: new Draft() }; },
	subagent_end: (draft, chunk) => { const child = draft.call(chunk).child; if (child) child.status = chunk.status ?? "completed"; },
	// A turn that failed leaves a step that will never be committed.
	run_started: (draft) => { draft.steps = draft.steps.filter((step) => step.done); draft.notes = []; },
	step_committed: (draft, chunk) => { const step = draft.steps.at(-1); if (step) step.done = true; if (chunk.warnings?.length) draft.notes.push({ kind: "warning", at: chunk.timestamp, texts: chunk.warnings }); },
	error: (draft, chunk) => draft.notes.push({ kind: "error", at: chunk.timestamp, texts: [chunk.error] }),
	run_interrupted: (draft, chunk) => draft.notes.push({ kind: "interrupted", at: chunk.timestamp, texts: [chunk.reason ?? ""] }),
};

function ask(draft, chunk, kind) {
	const call = draft.call(chunk);
	if (call.state === "done" || call.state === "failed") return;
	Object.assign(call, { input: chunk.input, state: "waiting", ask: { kind, tool_call_id: chunk.tool_call_id, tool_name: chunk.tool_name, input: chunk.input, approval_id: chunk.approval_id, effect_key: chunk.effect_key, question: chunk.question, deadline_at: chunk.deadline_at, since: chunk.timestamp } });
}
