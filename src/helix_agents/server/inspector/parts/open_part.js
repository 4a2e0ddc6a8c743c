// The end of a conversation that is not stored or not answered yet: the open step, its questions, why a run stopped.

import { h, put, redraw } from "../dom.js";
import { isLive } from "../status.js";
import { ask, questionKey } from "./ask.js";
import { blank } from "./blank.js";
import { message, note, openStep } from "./message.js";
import { rewrite } from "./rewrite.js";

export class OpenPart {
	#store;
	#answered;
	#actions;
	#asks = new Map();

	constructor(store, answered, actions) {
		this.#store = store;
		this.#answered = answered;
		this.#actions = actions;
		this.node = h("div.open");
	}

	// The context that entries need to be drawn.
	get context() {
		const store = this.#store;
		const { edit, again, switchTo } = this.#actions;
		const ways = (item) => rewrite(item, { branches: store.branches, previous: store.story.before(item), edit, again, switchTo });
		return { rewrite: ways, agent: store.session.agent_type, sessionId: store.id, question: (each) => this.#question(each), below: (id) => store.waitingBelow(id), times: store.history.calls, usage: store.usageByStep };
	}

	// Whether a person is writing an answer to a pending question.
	get isBusy() {
		const { activeElement } = document;
		return this.node.contains(activeElement) && activeElement.matches("input, textarea") && this.#asks.has(activeElement.closest(".ask")?.dataset.question);
	}

	forgetAnswered() {
		const waiting = new Set(this.#store.waiting.map(questionKey));
		for (const key of this.#asks.keys()) if (!waiting.has(key)) this.#asks.delete(key);
	}

	draw() {
		const { draft, story, session, link, openSteps } = this.#store;
		if (draft.isEmpty && !story.count) return put(this.node, blank("No message yet", "What people and the agent say appears here."));
		const live = isLive(session.status) && link === "live";
		const failed = session.status === "failed" && !draft.notes.length && session.error;
		const notes = failed ? [{ kind: "error", at: session.updated_at, texts: [session.error] }] : draft.notes;
		return redraw(this.node, this.#putAside(), openSteps.map((step) => openStep(this.#withAnswers(step), step.agent ?? session.agent_type, { ...this.context, rewrite: undefined, live })), notes.map(note));
	}

	// Text typed into a question survives a redraw.
	#question(each) {
		const key = questionKey(each);
		if (!this.#asks.has(key)) this.#asks.set(key, ask(each, { sessionId: this.#store.session.root_session_id ?? this.#store.id, answered: this.#answered }));
		return this.#asks.get(key);
	}

	// Chunks do not report that a question was answered; the session does.
	#withAnswers(step) {
		const pending = this.#store.session.pending_client_tool_calls ?? {};
		const answered = (call) => (pending[call.id]?.submitted_at ? { ...call, ask: undefined, state: call.state === "waiting" ? "asked" : call.state, answeredBy: pending[call.id].answered_by } : call);
		return { ...step, calls: new Map([...step.calls].map(([id, call]) => [id, answered(call)])) };
	}

	// A suspended step is stored before its questions are answered: it is drawn here, from its chunks.
	#putAside() {
		const { draft, story, session, waiting } = this.#store;
		if (!story.endsOpen) return null;
		const item = story.items.at(-1);
		const live = new Map([...draft.calls()].map((call) => [call.id, call]));
		const asked = new Map(waiting.map((each) => [each.tool_call_id, each]));
		const calls = [...item.calls.values()].map((call) => {
			const { child, ...now } = live.get(call.id) ?? {};
			const known = call.state === "asked" ? { ...call, ...now, input: now.input ?? call.input, child: child ?? call.child } : call;
			const isOpen = known.state !== "done" && known.state !== "failed";
			const answeredBy = session.pending_client_tool_calls?.[call.id]?.answered_by ?? known.answeredBy;
			return [call.id, { ...known, answeredBy, ask: isOpen ? asked.get(call.id) : undefined }];
		});
		return message({ ...item, calls: new Map(calls) }, { ...this.context, live: isLive(session.status) });
	}
}
