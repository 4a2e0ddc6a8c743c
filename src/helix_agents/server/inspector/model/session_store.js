// One session as this page knows it. Frames come in, views are notified by topic; data flows one way.
//
// The stored conversation comes from snapshots, the open step from the chunks after the snapshot's sequence. After each
// commit a new snapshot adds the new messages and states which chunks it covers. Nothing is drawn twice, because
// snapshots are read one after another and a stored step is never drawn from chunks (`openSteps`).

import { applyPatch } from "../../client.js";
import { follow, get, path, query } from "../api.js";
import { after, atMost, oneAtATime } from "../dom.js";
import { writeJson } from "../json.js";
import { waits } from "../status.js";
import { Draft } from "./draft.js";
import { History } from "./history.js";
import { Story } from "./story.js";
import { usageByStep } from "./usage.js";

const SETTLES = new Set(["user_message", "step_committed", "run_suspended", "run_interrupted", "run_started", "run_resumed", "output", "error"]);
const WINDOW = 200;
const PAST = 20_000;
const AGAIN = 2000;
const STARTS_OVER = new Set(["stream_rewound", "stream_resync"]);

export class SessionStore {
	#listeners = new Map();
	#recent = [];
	#follower = null;
	#past = null;
	#unread = [];
	#startedOver = 0;
	#wanted = null;
	#syncing = null;
	#again = after(AGAIN, () => this.#quietly(this.#sync()));
	#stream = "connecting";
	#refresh = after(80, () => this.refresh());
	#around = atMost(1000, () => this.#quietly(this.#readAround()));
	#readAround = oneAtATime(() => this.#readWhatIsAround());
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
		this.branches = [];
		this.asked = [];
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
		await this.#sync("all");
		this.#quietly(this.#readAround());
		this.#readPast();
	}

	// Starts work without awaiting it: leaving the view stops it, an unreachable server is retried, any other error is
	// shown as the state of the connection.
	#quietly(work) {
		work.catch((error) => {
			if (error.name === "AbortError") return;
			if (this.#wanted && error.isPassing) this.#again();
			this.#linked(error.code === "session_not_found" ? "gone" : error);
		});
	}

	stop() {
		this.#abort.abort();
		this.#refresh.stop();
		this.#again.stop();
		this.#around.stop();
		this.#follower?.close();
		this.#past?.close();
		this.#listeners.clear();
	}

	retryNow() {
		this.#follower?.retryNow();
	}

	// Reads everything again: after a restore, a rewind, or when the stream and this page no longer agree.
	reload() {
		this.#quietly(this.#sync("all").then(() => this.#readAround()));
	}

	// Reads what is new after a commit or an answer.
	refresh() {
		this.#quietly(this.#sync("rest"));
	}

	// One snapshot at a time: two concurrent responses would add the same messages twice. A request that arrives
	// during a read causes one more read; a failed read stays requested.
	#sync(what) {
		if (what && this.#wanted !== "all") this.#wanted = what;
		this.#syncing ??= this.#work().finally(() => { this.#syncing = null; });
		return this.#syncing;
	}

	async #work() {
		while (this.#wanted) {
			const what = this.#wanted;
			this.#wanted = null;
			try {
				await (what === "all" ? this.#readAll() : this.#readRest());
			} catch (error) {
				this.#wanted ??= what;
				throw error;
			}
		}
		if (this.link instanceof Error) this.#linked(this.#stream);
	}

	#snapshot(offset) {
		return get(path("sessions", this.id, "snapshot") + query({ offset }), this.#abort.signal);
	}

	async #readAll() {
		const found = await this.#snapshot(-WINDOW);
		this.#follower?.close();
		this.sequence = found.sequence;
		this.checkpoints = [];
		this.#recent = [];
		this.story = new Story(found.message_count - found.messages.length);
		this.#adopt(found);
		this.#follow();
	}

	async #readRest() {
		const found = await this.#snapshot(this.story.count);
		if (found.message_count < this.story.count) return this.#readAll();
		this.#recent = this.#recent.filter(([sequence]) => sequence > found.sequence);
		this.#adopt(found);
		this.story.tell(found.session.step_count + Number(this.story.endsOpen), found.session.updated_at);
		return this.#around();
	}

	// Applies a snapshot, then again the chunks after it.
	#adopt(found) {
		this.session = found.session;
		this.state = found.session.custom_state ?? {};
		this.story.add(found.messages);
		this.draft = new Draft(this.children);
		for (const [sequence, chunk] of this.#recent) {
			this.draft.add(sequence, chunk);
			if (isPatch(chunk)) this.#apply(chunk.patches);
		}
		this.isPatched = this.#recent.some(([, chunk]) => isPatch(chunk));
		this.#tell("session", "story", "draft", "state");
	}

	#part(name, values = {}) {
		return get(path("sessions", this.id, name) + query(values), this.#abort.signal);
	}

	async #readWhatIsAround() {
		const nested = waits(this.session.status) && Object.keys(this.session.suspended_awaiting_children ?? {}).length > 0;
		const [checkpoints, children, runs, branches, result] = await Promise.all([
			this.#part("checkpoints", { limit: WINDOW }), this.#part("children"), this.#part("runs"), this.#part("branches"), nested ? get(path("result", this.id), this.#abort.signal) : { suspended: [] },
		]);
		this.#keep(checkpoints);
		this.children = children.items;
		this.runs = runs.items;
		const isSame = writeJson(this.branches) === writeJson(branches.items);
		this.branches = branches.items;
		if (!isSame) this.#tell("branches");
		this.asked = result.suspended;
		this.story.adopt(new Map(this.children.map((ref) => [ref.parent_tool_call_id, { id: ref.sub_session_id, agent: ref.agent_type, status: ref.status }])));
		this.draft.children = this.children;
		this.#tell("story", "checkpoints", "session", "draft");
		await this.#readUsage();
	}

	// Checkpoints arrive newest first and in pages; here they are oldest first, each with a name.
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

	// Loads earlier messages and prepends them. Concurrent callers share one request.
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

	turnOf(runId) {
		return this.runs.find((run) => run.run_id === runId)?.turn;
	}

	workerOf(runId) {
		const worker = this.runs.find((run) => run.run_id === runId)?.worker;
		return worker ?? (runId ? `run ${runId.replace(/^run-/, "").slice(0, 6)}` : "a process");
	}

	async #readUsage() {
		this.usage = await this.#part("usage", { entries: true });
		this.usageByStep = usageByStep(this.usage.entries ?? [], this.id);
		this.#tell("usage");
	}

	#follow() {
		this.#follower = follow(`${path("stream", this.id)}?follow=true`, this.sequence, {
			handle: (frame) => this.#frame(frame),
			tell: (state, wait) => {
				if (state.code === "stream_truncated") return this.reload();
				// Retry the reads that failed while the server was unreachable.
				if (state === "live" && this.#stream === "lost") this.refresh();
				this.#stream = state;
				return this.#linked(state, wait);
			},
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
			// The marker follows the last commit in the stream, so the reload reads it again.
			if (sequence <= this.#startedOver) return undefined;
			this.#startedOver = sequence;
			return this.reload();
		}
		this.#recent.push([sequence, chunk]);
		this.draft.add(sequence, chunk);
		if (isPatch(chunk)) this.#patch(chunk.patches);
		if (SETTLES.has(chunk.type) && !chunk.sub_session_id) this.#refresh();
		this.#tell("draft");
		return undefined;
	}

	#patch(patches) {
		for (const pointer of this.#apply(patches)) this.flashes.set(pointer, performance.now());
		this.isPatched = true;
		this.#tell("state");
	}

	// Skip a patch that does not apply: the next commit brings the whole state.
	#apply(patches) {
		try {
			const touched = [];
			this.state = applyPatch(this.state, patches, touched);
			return touched;
		} catch { return []; }
	}

	// Loads the chunks before the snapshot, for timeline and chunk list; live chunks wait until these are loaded.
	#readPast() {
		const whole = new History();
		const until = this.sequence;
		const finish = () => {
			if (this.historyIsWhole) return;
			this.historyIsWhole = true;
			this.#past?.close();
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
			this.#past?.close();
			whole.missing = from;
			this.#past = follow(path("stream", this.id), from, { handle, tell });
		};
		return begin(Math.max(0, until - PAST));
	}

	// The steps that are not stored yet. After a crash or a replay the stream may repeat a stored one.
	get openSteps() {
		const stored = this.session.step_count + (this.story.endsOpen ? 1 : 0);
		return this.draft.steps.filter(({ step }) => !(step <= stored));
	}

	// The questions to people, each with its call: the stored ones, then newer ones from chunks.
	get waiting() {
		const stored = this.session?.pending_client_tool_calls ?? {};
		const asks = new Map();
		const since = this.session?.updated_at;
		for (const pending of [...Object.values(stored), ...this.asked]) {
			if (!pending.submitted_at) asks.set(pending.tool_call_id, { ...pending, kind: pending.kind ?? (pending.later === "asked" ? "client" : pending.effect ? "outcome" : pending.approval_id ? "approval" : "client"), effect_key: pending.effect_key ?? pending.effect?.key, question: pending.question ?? pending.asked?.question, since: pending.asked_at ?? since });
		}
		for (const call of this.draft.calls()) if (call.ask && !Object.hasOwn(stored, call.id)) asks.set(call.id, call.ask);
		return [...asks.values()];
	}

	// The questions of the sub-agent that a call started.
	waitingBelow(callId) {
		const ids = Object.values(this.session.suspended_awaiting_children ?? {}).filter((wait) => wait.parent_tool_call_id === callId).flatMap((wait) => wait.tool_call_ids);
		return this.waiting.filter((each) => ids.includes(each.tool_call_id));
	}
}

const isPatch = (chunk) => chunk.type === "state_patch" && !chunk.sub_session_id;
