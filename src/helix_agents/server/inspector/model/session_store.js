// One session as this page knows it. Frames go in, views are told by topic; data flows one way.
//
// The stored conversation comes from snapshots, the open step from chunks behind the snapshot's sequence. After each
// commit a new snapshot brings the rest of the messages and says which chunks it covers: nothing is drawn twice.

import { get, path, query } from "../api.js";
import { after, atMost } from "../dom.js";
import { Follower } from "../sse.js";
import { Draft } from "./draft.js";
import { History } from "./history.js";
import { applyPatch } from "./patch.js";
import { Story } from "./story.js";
import { usageByStep } from "./usage.js";

const SETTLES = new Set(["step_committed", "run_suspended", "run_interrupted", "run_started", "run_resumed", "output", "error"]);
const WINDOW = 200;
const PAST = 20_000;
const STARTS_OVER = new Set(["stream_rewound", "stream_resync"]);

export class SessionStore {
	#listeners = new Map();
	#recent = [];
	#follower = null;
	#past = null;
	#unread = [];
	#startedOver = 0;
	#refresh = after(80, () => this.#quietly(this.#catchUp()));
	#around = atMost(1000, () => this.#quietly(this.#readAround()));
	#earlier = null;
	#abort = new AbortController();

	constructor(sessionId) {
		this.id = sessionId;
		this.session = null;
		this.story = new Story();
		this.draft = new Draft();
		this.history = new History();
		this.checkpoints = [];
		this.children = [];
		this.runs = [];
		this.usage = null;
		this.usageByStep = new Map();
		this.state = {};
		this.flashes = new Map();
		this.isPatched = false;
		this.link = "connecting";
		this.historyIsWhole = false;
	}

	on(topic, act) {
		if (!this.#listeners.has(topic)) this.#listeners.set(topic, new Set());
		this.#listeners.get(topic).add(act);
	}

	#tell(...topics) {
		for (const topic of topics) for (const act of this.#listeners.get(topic) ?? []) act();
	}

	async open() {
		await this.#snapshot();
		this.#follow();
		await this.#readAround();
		this.#readPast();
	}

	// Work that nobody waits for: a view that was left stops it, anything else is shown as the state of the link.
	#quietly(work) {
		work.catch((error) => {
			if (error.name === "AbortError") return;
			this.#linked(error.code === "session_not_found" ? "gone" : error);
		});
	}

	stop() {
		this.#abort.abort();
		this.#refresh.stop();
		this.#around.stop();
		this.#follower?.stop();
		this.#past?.stop();
		this.#listeners.clear();
	}

	retryNow() {
		this.#follower?.retryNow();
	}

	// Reads everything again: after a restore, a rewind, or when the stream and we no longer agree.
	reload() {
		this.#quietly(this.#startOver());
	}

	async #startOver() {
		this.#follower?.stop();
		this.checkpoints = [];
		await this.#snapshot();
		this.#follow();
		await this.#readAround();
	}

	async #snapshot() {
		const found = await get(path("sessions", this.id, "snapshot") + query({ offset: -WINDOW }), this.#abort.signal);
		this.session = found.session;
		this.state = found.session.custom_state ?? {};
		this.sequence = found.sequence;
		this.draft = new Draft();
		this.#recent = [];
		this.story = new Story(found.message_count - found.messages.length);
		this.story.add(found.messages);
		this.isPatched = false;
		this.#tell("session", "story", "draft", "state");
	}

	#part(name, values = {}) {
		return get(path("sessions", this.id, name) + query(values), this.#abort.signal);
	}

	async #readAround() {
		const [checkpoints, children, runs] = await Promise.all([this.#part("checkpoints", { limit: WINDOW }), this.#part("children"), this.#part("runs")]);
		this.#keep(checkpoints);
		this.children = children.items;
		this.runs = runs.items;
		this.story.adopt(new Map(this.children.map((ref) => [ref.parent_tool_call_id, { id: ref.sub_session_id, agent: ref.agent_type, status: ref.status }])));
		this.#tell("story", "checkpoints", "session");
		await this.#readUsage();
	}

	// Checkpoints come newest first and in pages; here they lie oldest first, each with a name.
	#keep({ items, total }) {
		const known = new Map([...this.checkpoints, ...items].map((each) => [each.checkpoint_id, each]));
		this.checkpoints = [...known.values()].sort((a, b) => a.created_at - b.created_at || a.version - b.version);
		this.checkpointTotal = Math.max(total ?? 0, this.checkpoints.length);
		const taken = new Set();
		for (const each of this.checkpoints) {
			each.name = `s${each.step_count}${taken.has(each.step_count) ? "+" : ""}`;
			taken.add(each.step_count);
		}
		this.story.place([...this.checkpoints].sort((a, b) => a.message_count - b.message_count || a.created_at - b.created_at), this.checkpoints.length >= this.checkpointTotal);
	}

	async loadOlderCheckpoints() {
		if (this.checkpoints.length >= this.checkpointTotal) return;
		this.#keep(await this.#part("checkpoints", { limit: WINDOW, offset: this.checkpoints.length }));
		this.#tell("checkpoints");
	}

	// Puts the messages before the first one in front of it. Everybody who asks meanwhile waits for the same answer.
	loadEarlier(limit = WINDOW) {
		const { story } = this;
		this.#earlier ??= (async () => {
			try {
				const offset = Math.max(0, story.first - limit);
				const [found] = await Promise.all([this.#part("messages", { offset, limit: story.first - offset }), this.loadOlderCheckpoints()]);
				if (story !== this.story) return;
				story.prepend(found.items);
				this.#keep({ items: [], total: this.checkpointTotal });
				this.#tell("story");
			} finally { this.#earlier = null; }
		})();
		return this.#earlier;
	}

	workerOf(runId) {
		const worker = this.runs.find((run) => run.run_id === runId)?.metadata?.worker;
		return worker ?? (runId ? `run ${runId.replace(/^run-/, "").slice(0, 6)}` : "a process");
	}

	async #readUsage() {
		this.usage = await this.#part("usage", { entries: true });
		this.usageByStep = usageByStep(this.usage.entries ?? [], this.id);
		this.#tell("usage");
	}

	#follow() {
		this.#follower = new Follower(`${path("stream", this.id)}?follow=true`, this.sequence, {
			handle: (frame) => this.#frame(frame),
			tell: (state, wait) => (state.code === "stream_truncated" ? this.reload() : this.#linked(state, wait)),
		});
	}

	#linked(state, wait) {
		if (this.link === "gone") return;
		this.link = state;
		this.linkWait = wait;
		this.#tell("link");
	}

	#frame({ event, id, data, size }) {
		if (event === "chunk") return this.#chunk(id, data, size);
		if (event === "truncated") return this.reload();
		if (event === "gone") this.#linked("gone");
		if (event === "end" || event === "fail" || event === "pause") this.#refresh();
		return undefined;
	}

	#chunk(sequence, chunk, size) {
		if (this.historyIsWhole) this.history.add(sequence, chunk, size);
		else this.#unread.push([sequence, chunk, size]);
		this.sequence = sequence;
		this.#tell("history");
		if (STARTS_OVER.has(chunk.type) && !chunk.sub_session_id) {
			// The marker stays in the stream, behind the last commit: it comes again after the reload.
			if (sequence <= this.#startedOver) return undefined;
			this.#startedOver = sequence;
			return this.reload();
		}
		this.#recent.push([sequence, chunk]);
		this.draft.add(sequence, chunk);
		if (chunk.type === "state_patch" && !chunk.sub_session_id) this.#patch(chunk.patches);
		if (SETTLES.has(chunk.type) && !chunk.sub_session_id) this.#refresh();
		this.#tell("draft");
		return undefined;
	}

	#patch(patches) {
		try {
			const [state, touched] = applyPatch(this.state, patches);
			this.state = state;
			this.isPatched = true;
			for (const pointer of touched) this.flashes.set(pointer, performance.now());
			this.#tell("state");
		} catch {
			this.#refresh();
		}
	}

	// A commit happened: fetch what is new and let go of the chunks that it covers.
	async #catchUp() {
		const found = await get(path("sessions", this.id, "snapshot") + query({ offset: this.story.count }), this.#abort.signal);
		if (found.message_count < this.story.count) return this.#startOver();
		this.session = found.session;
		this.#recent = this.#recent.filter(([sequence]) => sequence > found.sequence);
		this.draft = new Draft();
		let state = found.session.custom_state ?? {};
		for (const [sequence, chunk] of this.#recent) {
			this.draft.add(sequence, chunk);
			if (chunk.type === "state_patch" && !chunk.sub_session_id) [state] = applyPatch(state, chunk.patches);
		}
		this.state = state;
		this.story.add(found.messages);
		this.isPatched = false;
		this.#tell("session", "story", "draft", "state");
		return this.#around();
	}

	// The chunks from before the snapshot, for timeline and chunk list; the live ones wait until these are in.
	#readPast() {
		const whole = new History();
		const until = this.sequence;
		const finish = () => {
			if (this.historyIsWhole) return;
			this.historyIsWhole = true;
			this.#past?.stop();
			for (const each of this.#unread) whole.add(...each);
			this.#unread = [];
			this.history = whole;
			this.#tell("history");
		};
		if (!until) return finish();
		const handle = ({ event, id, data, size }) => {
			if (event === "truncated") return begin(data.first_sequence - 1);
			if (event === "chunk") {
				whole.add(id, data, size);
				if (id >= until) finish();
			} else if (event !== "open") finish();
			return undefined;
		};
		const tell = (state) => {
			if (state.code === "stream_truncated") begin(state.body.first_sequence - 1);
			else if (state instanceof Error || state === "over") finish();
		};
		const begin = (from) => {
			this.#past?.stop();
			whole.missing = from;
			this.#past = new Follower(path("stream", this.id), from, { handle, tell });
		};
		return begin(Math.max(0, until - PAST));
	}

	get waiting() {
		const asks = new Map();
		for (const pending of Object.values(this.session?.pending_client_tool_calls ?? {})) {
			if (pending.submitted_at) continue;
			asks.set(pending.tool_call_id, { kind: pending.approval_id ? "approval" : "client", ...pending, since: this.session.updated_at });
		}
		for (const step of this.draft.steps) for (const call of step.calls.values()) if (call.ask && !asks.has(call.id)) asks.set(call.id, call.ask);
		return [...asks.values()];
	}
}
