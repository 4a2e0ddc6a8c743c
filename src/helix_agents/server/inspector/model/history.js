// All retained chunks of a session as spans on a time axis and as lines for the Chunks panel. Pure; memory is bounded.

const MOST_LINES = 20_000;
const MOST_CHARACTERS = 32_000_000;
const MOST_STEPS = 5000;
const FOLDED = new Set(["text_delta", "thinking", "tool_arg_delta"]);

const ASKS = new Set(["tool_approval_request", "client_tool_request", "tool_outcome_request"]);

export class History {
	constructor() {
		this.lines = [];
		this.missing = 0;
		this.size = 0;
		this.steps = [];
		this.cuts = [];
		this.calls = new Map();
		this.workers = [];
		this.latest = 0;
		this.turn = 0;
		this.chunks = 0;
		this.lastAt = 0;
	}

	add(sequence, chunk, size = 0) {
		if (sequence <= this.latest) return;
		this.latest = sequence;
		this.chunks += 1;
		this.#line(sequence, chunk, size);
		this.#span(chunk);
		this.lastAt = Math.max(this.lastAt, chunk.timestamp ?? 0);
	}

	#line(sequence, chunk, size) {
		const last = this.lines.at(-1);
		const who = chunk.sub_session_id ?? "";
		if (last && FOLDED.has(chunk.type) && last.type === chunk.type && last.who === who && last.call === chunk.tool_call_id && last.step === chunk.step) {
			last.count += 1;
			last.until = sequence;
			if (last.text.length < 200) last.text += (chunk.delta ?? chunk.content ?? "").slice(0, 200);
			return;
		}
		this.size += size;
		this.lines.push({ size, sequence, until: sequence, type: chunk.type, at: chunk.timestamp, step: chunk.step, who, call: chunk.tool_call_id, count: 1, text: (chunk.delta ?? chunk.content ?? "").slice(0, 400), chunk: FOLDED.has(chunk.type) ? null : chunk });
		if (this.lines.length <= MOST_LINES && this.size <= MOST_CHARACTERS) return;
		for (const gone of this.lines.splice(0, Math.ceil(this.lines.length / 10))) this.size -= gone.size;
		this.missing = this.lines[0]?.sequence - 1;
	}

	#span(chunk) {
		const now = chunk.timestamp ?? this.lastAt;
		switch (chunk.type) {
			case "run_started":
				this.turn += 1;
				return this.#begin(chunk, now);
			case "run_resumed":
				return this.#takeOver(chunk, now);
			case "stream_rewound":
			case "stream_resync":
				this.rewoundAt = this.lastAt || now;
				this.#lose(chunk.step_count ?? 0);
				return undefined;
			case "step_committed":
				if (!chunk.sub_session_id) this.#close(now, chunk);
				return undefined;
			case "run_suspended":
			case "run_interrupted":
			case "output":
			case "error":
				if (!chunk.sub_session_id) this.#rest(now, chunk.type);
				return undefined;
			case "text_delta":
			case "thinking":
			case "tool_arg_delta":
				return this.#model(chunk, now);
			case "tool_start":
			case "tool_approval_request":
			case "client_tool_request":
			case "tool_outcome_request":
			case "tool_end":
			case "subagent_start":
			case "subagent_end":
				return this.#tool(chunk, now);
			default:
				return undefined;
		}
	}

	#begin(chunk, now) {
		this.workers.push({ run: chunk.run_id, turn: this.turn, from: now, to: null });
		this.modelFrom = now;
	}

	#takeOver(chunk, now) {
		const before = this.workers.at(-1);
		const crashed = this.rewoundAt && before && before.to === null;
		if (crashed) {
			before.to = this.rewoundAt;
			this.cuts.push({ from: this.rewoundAt, to: now, before: before.run, after: chunk.run_id, step: this.#openStep() });
		}
		this.rewoundAt = null;
		this.#begin(chunk, now);
	}

	// The step in progress, whose chunks may have been dropped by retention.
	#openStep() {
		const last = this.steps.at(-1);
		return last ? last.step + Number(last.committed) : undefined;
	}

	#lose(stepCount) {
		for (const step of this.steps) {
			if (step.step <= stepCount || step.committed) continue;
			step.lost = true;
			for (const span of step.spans) if (span.to === null || !span.lost) Object.assign(span, { to: span.to ?? this.lastAt, lost: true });
			step.to ??= this.lastAt;
		}
	}

	#step(chunk, now) {
		if (!this.workers.length) this.#begin({}, now);
		let step = this.steps.at(-1);
		if (!step || step.step !== chunk.step || step.committed || step.lost) {
			step = { step: chunk.step, turn: this.workers.at(-1)?.turn ?? 1, from: this.modelFrom ?? now, to: null, spans: [], committed: false, lost: false };
			this.steps.push(step);
			if (this.steps.length > MOST_STEPS) for (const span of this.steps.shift().spans) this.calls.delete(span.call);
		}
		return step;
	}

	#model(chunk, now) {
		const step = this.#step(chunk, now);
		const who = chunk.sub_session_id ?? "";
		let span = step.spans.findLast((each) => each.kind === "model" && each.who === who && each.open);
		if (!span) {
			span = { kind: "model", name: "model", who, depth: who ? 1 : 0, from: who ? now : (step.spans.length ? now : step.from), to: now, open: true, state: "live" };
			step.spans.push(span);
		}
		span.to = now;
	}

	#tool(chunk, now) {
		const step = this.#step(chunk, now);
		const who = chunk.type.startsWith("subagent") ? "" : chunk.sub_session_id ?? "";
		const model = step.spans.findLast((each) => each.kind === "model" && each.who === who && each.open);
		if (model) Object.assign(model, { open: false, state: "done", to: now });
		let span = step.spans.find((each) => each.call === chunk.tool_call_id);
		if (!span) {
			span = { kind: "tool", name: chunk.tool_name ?? chunk.agent_type, call: chunk.tool_call_id, who, depth: who ? 1 : 0, from: now, to: null, state: "live" };
			step.spans.push(span);
			this.calls.set(span.call, span);
		}
		if (ASKS.has(chunk.type)) Object.assign(span, { state: "wait" });
		if (chunk.type === "subagent_start") span.kind = "agent";
		if (chunk.type === "tool_start" && span.state === "wait") span.state = "live";
		if (chunk.type === "tool_end") Object.assign(span, { to: now, state: chunk.success ? "done" : "fail", error: chunk.error });
	}

	#close(now, chunk) {
		const step = this.steps.at(-1);
		if (step && !step.committed) {
			Object.assign(step, { to: now, committed: true, checkpoint: chunk.checkpoint_id });
			for (const span of step.spans) if (span.to === null || span.open) Object.assign(span, { to: span.to ?? now, open: false, state: span.state === "live" ? "done" : span.state });
		}
		this.modelFrom = now;
	}

	#rest(now, kind) {
		const worker = this.workers.at(-1);
		if (worker) worker.to = now;
		if (kind !== "run_suspended") return;
		for (const span of this.steps.at(-1)?.spans ?? []) if (span.open) Object.assign(span, { open: false, state: "done" });
	}

	turns() {
		return [...new Set(this.workers.map((worker) => worker.turn))];
	}
}
