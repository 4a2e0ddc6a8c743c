// The browser client of helix-agents: one conversation as a page shows it, live, across reloads and lost connections.
//
//     import { Helix } from "/client.js";
//     const chat = new Helix({ token }).open("chat-1", { agent: "companion" });
//     chat.subscribe(({ messages, questions, state }) => draw(messages, questions, state));
//     await chat.send("Hello");
//
// A snapshot holds what is stored; the chunks after its sequence show the step that is open. Every commit brings a new
// snapshot, so a page at rest shows exactly what is stored.

/** @typedef {{ id?: string, role: string, content: any, thinking?: string, tool_calls?: { id: string, name: string, arguments: any }[], tool_call_id?: string, success?: boolean, [key: string]: any }} Message */
/** @typedef {{ kind: "approval" | "client" | "outcome", tool_call_id: string, tool_name: string, input: any, question?: any, approval_id?: string | null, deadline_at?: number | null }} Question */
/** @typedef {{ approved: boolean, arguments?: object, reason?: string } | { result: any } | { error: string } | { happened: boolean | null, result?: any }} Answer */
/** @typedef {{ branch_id: string, message_id: string | null, message_count: number, created_at: number, is_active: boolean }} Branch */
/** @typedef {{ type: string, [key: string]: any }} Chunk */
/** @typedef {{ event: string, id: number, data: any, size: number }} Frame */
/** @typedef {"connecting" | "live" | "lost" | "over" | "new" | "gone" | Problem} Link `new`: the session does not exist yet. */
/** @typedef {{ messages: Message[], questions: Question[], state: any, status: string, session: any, link: Link }} View `messages`: the stored ones, then those of the open step, which grow. `session` is null while it does not exist. */

const [FIRST_WAIT, LONGEST_WAIT, LONGEST_SILENCE, SLICE, SEND_TRIES] = [500, 15_000, 60_000, 12, 6];
const FINAL = new Set(["end", "fail", "pause", "truncated", "gone"]);
const STARTS_OVER = new Set(["stream_rewound", "stream_resync"]);
const BEGINS = new Set(["run_started", "run_resumed"]);
const SETTLES = new Set([...BEGINS, "run_interrupted", "run_suspended", "step_committed", "branch_switched", "output", "error"]);
/** @type {Record<string, Question["kind"]>} */
const ASKS = { tool_approval_request: "approval", client_tool_request: "client", tool_outcome_request: "outcome" };

const sleep = (/** @type {number} */ wait) => new Promise((resolve) => { setTimeout(resolve, wait); });
const randomId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
const callKey = (/** @type {any} */ each) => `${each.sub_session_id ?? ""} ${each.tool_call_id}`;

/** A request that failed. `status` is 0 if the server did not answer; `code` is the snake_case name of the error. */
export class Problem extends Error {
	constructor(/** @type {number} */ status, /** @type {any} */ body = {}, /** @type {unknown} */ cause = undefined) {
		super(body.detail || body.title || (status ? `The server answered ${status}.` : "The server does not answer."), { cause });
		this.status = status;
		/** @type {string} */
		this.code = body.code ?? (status ? "unknown" : "unreachable");
		this.body = body;
		/** Whether the same request may work later. */
		this.isPassing = !status || status >= 500 || status === 429;
	}
}

/** A server. `base`: where its routes are (default: beside this file). `token`: a text, or a function that returns one. */
export class Helix {
	/** @param {{ base?: string, token?: string | (() => string), parse?: (text: string) => any, write?: (value: any) => string }} [options] */
	constructor({ base = new URL(".", import.meta.url).href, token = "", parse = JSON.parse, write = JSON.stringify } = {}) {
		this.base = new URL(base, location.href);
		this.token = typeof token === "function" ? token : () => token;
		this.parse = parse;
		this.write = write;
	}

	/** Opens a conversation; without an id a new one. `agent` replies in a session that does not exist yet. @param {string} [id] @param {{ agent?: string }} [options] */
	open(id = `chat-${randomId()}`, { agent = "" } = {}) {
		return new Conversation(this, id, agent);
	}

	/** Sends a request and returns the JSON of the response, or throws a `Problem`. @param {string} method @param {string} path @param {any} [body] @param {{ signal?: AbortSignal, headers?: Record<string, string> }} [options] @returns {Promise<any>} */
	async call(method, path, body, options) {
		const response = await this.fetch(method, path, body, options);
		const text = await response.text().catch((cause) => { throw options?.signal?.aborted ? cause : new Problem(0, {}, cause); });
		return response.status === 204 ? null : this.parse(text);
	}

	/** The same, with the response as it is. @param {string} method @param {string} path @param {any} [body] @param {{ signal?: AbortSignal, headers?: Record<string, string> }} [options] */
	async fetch(method, path, body, { signal, headers = {} } = {}) {
		const [token, isJson] = [this.token(), body !== undefined];
		const all = { ...headers, ...(token && { authorization: `Bearer ${token}` }), ...(isJson && { "content-type": "application/json" }) };
		const response = await fetch(new URL(path, this.base), { method, signal, headers: all, body: isJson ? this.write(body) : undefined })
			.catch((cause) => { throw signal?.aborted ? cause : new Problem(0, {}, cause); });
		if (response.ok) return response;
		throw new Problem(response.status, await response.json().catch(() => ({})));
	}
}

/** One stream of the server, followed across lost connections; no chunk comes twice. `reopen`: connect again some time after a final frame. */
export class Stream {
	#connection = new AbortController();
	#isClosed = false;
	#isOver = false;
	#wait = FIRST_WAIT;
	#timer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);

	/** @param {Helix} helix @param {string} path @param {number} sequence @param {{ onFrame: (frame: Frame) => void, onLink?: (link: Link, wait: number) => void, reopen?: boolean }} handlers */
	constructor(helix, path, sequence, handlers) {
		this.helix = helix;
		this.path = path;
		this.sequence = sequence;
		this.handlers = handlers;
		this.#connect();
	}

	/** Ends it; nothing is reported any more. */
	close() {
		this.#isClosed = true;
		clearTimeout(this.#timer);
		this.#connection.abort();
	}

	/** Connects now instead of after the wait. */
	retryNow() {
		if (this.#timer === undefined) return;
		clearTimeout(this.#timer);
		this.#connect();
	}

	async #connect() {
		this.#timer = undefined;
		this.#connection = new AbortController();
		/** @type {Link} */
		const link = await this.#read(this.#connection).then((isOver) => (isOver ? "over" : "lost"), (error) => (error.status && !error.isPassing ? error : "lost"));
		if (this.#isClosed) return;
		const wait = link === "over" ? LONGEST_WAIT : this.#wait;
		if (link === "lost" || (link === "over" && this.handlers.reopen)) this.#timer = setTimeout(() => this.#connect(), wait);
		this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
		this.handlers.onLink?.(link, wait);
	}

	// `follow=true` goes on behind an end: a stream is over when its body is, and its last frame said so.
	async #read(/** @type {AbortController} */ connection) {
		const path = `${this.path}${this.path.includes("?") ? "&" : "?"}from_sequence=${this.sequence}`;
		const response = await this.helix.fetch("GET", path, undefined, { headers: { accept: "text/event-stream" }, signal: connection.signal });
		if (response.status === 204 || !response.body) return true;
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
		for (let rest = "", from = performance.now(); ;) {
			// The server says something every 15 seconds: a connection that is silent for much longer is dead.
			const timer = setTimeout(() => connection.abort(), LONGEST_SILENCE);
			const { value, done } = await reader.read().finally(() => clearTimeout(timer));
			if (done) return this.#isOver;
			const frames = (rest + value).split("\n\n");
			rest = frames.pop() ?? "";
			for (const text of frames) {
				if (this.#isClosed) return true;
				this.#accept(text);
				if (performance.now() - from > SLICE) from = await sleep(0).then(() => performance.now()); // lets the page draw
			}
		}
	}

	#accept(/** @type {string} */ text) {
		/** @type {Record<string, string>} */
		const { event = "", id = "0", data } = Object.fromEntries(text.split("\n").map((line) => [line.split(":", 1)[0], line.slice(line.indexOf(":") + 1).trimStart()]));
		if (data === undefined) return;
		if (event === "chunk" && Number(id) <= this.sequence) return;
		this.#isOver = FINAL.has(event);
		if (event === "chunk") this.sequence = Number(id);
		if (event === "open") this.#wait = FIRST_WAIT;
		if (event === "open") this.handlers.onLink?.("live", 0);
		this.handlers.onFrame({ event, id: Number(id), data: this.helix.parse(data), size: text.length });
	}
}

/** A session as a page shows it. `Helix.open` makes it. */
export class Conversation {
	#listeners = /** @type {Set<(view: View) => void>} */ (new Set());
	#stored = /** @type {Message[]} */ ([]);
	#recent = /** @type {[number, Chunk][]} */ ([]); // the chunks after `covered`, which is where the snapshot ends
	#covered = -1;
	#marker = 0;
	#open = new OpenStep({}, [], [], String);
	#questions = /** @type {Map<string, Question>} */ (new Map());
	#stream = /** @type {Stream | undefined} */ (undefined);
	#wanted = /** @type {"" | "rest" | "whole"} */ ("");
	#reading = /** @type {Promise<void> | undefined} */ (undefined);
	#link = /** @type {Link} */ ("connecting");
	#isClosed = false;
	#isChanged = false;
	session = /** @type {any} */ (null);

	constructor(/** @type {Helix} */ helix, /** @type {string} */ id, /** @type {string} */ agent) {
		this.helix = helix;
		this.id = id;
		this.agent = agent;
		this.view = this.#draw();
		this.refresh();
	}

	/** Calls `listener` with the view, now and whenever it changes; returns a function that ends this. */
	subscribe = (/** @type {(view: View) => void} */ listener) => {
		this.#listeners.add(listener);
		listener(this.view);
		return () => { this.#listeners.delete(listener); };
	};

	/** Stops following. A run goes on. */
	close() {
		this.#isClosed = true;
		this.#stream?.close();
	}

	/** Says something: a text, the parts of a content, or whole messages. It is said once, even if it has to be sent again. @param {string | any[]} content @param {Record<string, any>} [options] more members of `POST /execute`, for example `if_running` @returns {Promise<{ session_id: string, run_id: string }>} */
	async send(content, options = {}) {
		const message = typeof content === "string" || content.every((each) => each.role) ? content : [{ role: "user", content }];
		const body = { agent_type: this.session?.agent_type ?? this.agent, session_id: this.id, message, ...options };
		const headers = { "idempotency-key": randomId() };
		for (let tries = 1; ; tries += 1) {
			try {
				return this.#done(await this.helix.call("POST", "execute", body, { headers }));
			} catch (/** @type {any} */ error) {
				if (!error.isPassing || tries === SEND_TRIES || this.#isClosed) throw error;
				await sleep(FIRST_WAIT * 2 ** tries);
			}
		}
	}

	/** Answers a question. An approval is named by its own id: if something else is asked since then, nothing is approved. @param {Question} question @param {Answer} answer @returns {Promise<{ receipt: string, can_resume: boolean }>} */
	async answer(question, answer) {
		const { approval_id, tool_call_id } = question;
		const receipt = await this.#post("tool-results", { ...(approval_id ? { approval_id } : { tool_call_id }), ...answer });
		for (const [key, each] of this.#questions) if (each.tool_call_id === tool_call_id && each.approval_id === approval_id) this.#questions.delete(key);
		return receipt;
	}

	/** Runs the turn of an assistant message again (default: the last one); what it was becomes a branch. @param {string} [messageId] */
	regenerate(messageId) { return this.#post("regenerate", { message_id: messageId }); }
	/** Replaces a user message and runs from there; what followed becomes a branch. @param {string} messageId @param {string | any[]} content */
	edit(messageId, content) { return this.#post("edit", { message_id: messageId, content }); }
	/** Lists the branches. @returns {Promise<Branch[]>} */
	async branches() { return (await this.helix.call("GET", this.#path("branches"))).items; }
	/** Brings a branch back, with its state. @param {string} branchId */
	switchTo(branchId) { return this.#post(`branches/${encodeURIComponent(branchId)}/switch`); }
	/** Lets the run stop at the next safe point. @param {string} [reason] */
	stop(reason) { return this.#post("interrupt", { reason }); }
	/** Goes on with a run that was stopped. */
	resume() { return this.#post("resume"); }
	/** Runs a failed turn again. */
	retry() { return this.#post("retry"); }

	/** Reads what is new, and connects now instead of after a wait. */
	refresh() {
		this.#stream?.retryNow();
		this.#sync("rest");
	}

	#path(/** @type {string} */ verb) { return `sessions/${encodeURIComponent(this.id)}/${verb}`; }
	async #post(/** @type {string} */ verb, /** @type {any} */ body = {}) { return this.#done(await this.helix.call("POST", this.#path(verb), body)); }
	#done(/** @type {any} */ result) { this.refresh(); return result; }

	// One snapshot at a time; what is asked for since then is read afterwards, once.
	#sync(/** @type {"rest" | "whole"} */ what) {
		if (this.#wanted !== "whole") this.#wanted = what;
		this.#reading ??= this.#read().finally(() => { this.#reading = undefined; });
	}

	async #read() {
		for (let wait = FIRST_WAIT; this.#wanted && !this.#isClosed; ) {
			const isWhole = this.#wanted === "whole" || !this.session;
			this.#wanted = "";
			try {
				this.#adopt(await this.helix.call("GET", `${this.#path("snapshot")}?offset=${isWhole ? 0 : this.#stored.length}`), isWhole);
			} catch (/** @type {any} */ error) {
				if (!error.isPassing) return this.#setLink(error.code !== "session_not_found" ? error : this.session ? "gone" : "new");
				this.#wanted ||= isWhole ? "whole" : "rest";
				if (!this.session) this.#setLink("lost");
				await sleep(wait);
				wait = Math.min(wait * 2, LONGEST_WAIT);
			}
		}
	}

	#adopt(/** @type {any} */ found, /** @type {boolean} */ isWhole) {
		if (!isWhole && found.message_count < this.#stored.length) return this.#sync("whole");
		this.session = found.session;
		this.#stored = isWhole ? found.messages : [...this.#stored, ...found.messages];
		const isBack = found.sequence < this.#covered; // after a restore, for example: it needs chunks that were let go
		this.#covered = found.sequence;
		this.#recent = isBack ? [] : this.#recent.filter(([sequence]) => sequence > found.sequence);
		this.#open = new OpenStep(found.session.custom_state ?? {}, this.#stored, this.#recent, this.helix.write);
		if (isBack || !this.#stream) this.#follow();
		return this.#tell();
	}

	#follow() {
		this.#stream?.close();
		this.#questions.clear();
		this.#stream = new Stream(this.helix, `stream/${encodeURIComponent(this.id)}?follow=true`, this.#covered, {
			reopen: true,
			onFrame: (frame) => this.#frame(frame),
			onLink: (link) => {
				if (link instanceof Problem && [410, 416].includes(link.status)) return this.#startOver();
				if (link === "live" && this.#link === "lost") this.#sync("rest");
				return this.#setLink(link instanceof Problem && link.status === 404 ? "gone" : link);
			},
		});
	}

	// The stream does not have what follows our place any more: read everything again, and follow from there.
	#startOver() {
		this.#covered = Infinity;
		this.#sync("whole");
	}

	#frame(/** @type {Frame} */ { event, id, data }) {
		if (event === "chunk") return this.#chunk(id, data);
		if (event === "truncated") return this.#startOver();
		if (event === "gone") this.close();
		if (event === "gone") return this.#setLink("gone");
		if (event === "pause") this.#questions = new Map(data.suspended.map((/** @type {Question} */ each) => [callKey(each), each]));
		if (event !== "open") this.#sync("rest");
		return this.#tell();
	}

	#chunk(/** @type {number} */ sequence, /** @type {Chunk} */ chunk) {
		const { type, tool_call_id, tool_name, input, sub_session_id } = chunk;
		if (ASKS[type]) this.#questions.set(callKey(chunk), { ...chunk, kind: ASKS[type], tool_call_id, tool_name, input });
		if (type === "tool_start" || type === "tool_end") this.#questions.delete(callKey(chunk));
		if (!sub_session_id && BEGINS.has(type)) this.#questions.clear();
		if (!sub_session_id && SETTLES.has(type)) this.#sync("rest");
		if (!sub_session_id && STARTS_OVER.has(type)) {
			this.#recent = []; // the stream has dropped them, too
			// What is shown again must not be appended to what it replaces, which may have been seen before the snapshot comes.
			if (type === "stream_rewound") this.#open = new OpenStep(this.session?.custom_state ?? {}, this.#stored, [], this.helix.write);
			if (sequence > this.#marker) this.#sync("whole"); // a marker comes again if the stream is read from further back
			this.#marker = Math.max(this.#marker, sequence);
		} else if (sequence > this.#covered) {
			this.#recent.push([sequence, chunk]);
			this.#open.add(chunk);
		}
		this.#tell();
	}

	#setLink(/** @type {Link} */ link) {
		this.#link = link;
		this.#tell();
	}

	// Several changes in a row are one view.
	#tell() {
		if (this.#isChanged) return;
		this.#isChanged = true;
		queueMicrotask(() => {
			this.#isChanged = false;
			this.view = this.#draw();
			for (const listener of this.#listeners) listener(this.view);
		});
	}

	/** @returns {View} */
	#draw() {
		const pending = this.session?.pending_client_tool_calls ?? {};
		const questions = [...this.#questions.values()].filter((each) => !pending[each.tool_call_id]?.submitted_at);
		const messages = [...this.#stored, ...this.#open.messages.map((each) => ({ ...each }))];
		return { messages, questions, state: this.#open.state, status: this.session?.status ?? "new", session: this.session, link: this.#link };
	}
}

/** What chunks say before their step is stored. */
class OpenStep {
	messages = /** @type {Message[]} */ ([]);
	#reply = /** @type {Message | undefined} */ (undefined);
	#step = 0;

	/** @param {any} state @param {Message[]} stored @param {[number, Chunk][]} chunks @param {(value: any) => string} write */
	constructor(state, stored, chunks, write) {
		this.state = state;
		this.write = write;
		this.known = new Set(stored.map((each) => each.id));
		for (const [, chunk] of chunks) this.add(chunk);
	}

	add(/** @type {Chunk} */ chunk) {
		if (chunk.sub_session_id) return;
		const reply = () => this.#replyOf(chunk);
		if (chunk.type === "text_delta") reply().content += chunk.delta;
		else if (chunk.type === "thinking") reply().thinking = (reply().thinking ?? "") + chunk.content;
		else if (chunk.type === "tool_start" || ASKS[chunk.type]) reply().tool_calls = calls(reply(), chunk);
		else if (chunk.type === "tool_end") this.messages.push(this.#result(chunk));
		else if (chunk.type === "state_patch") this.state = applyPatch(this.state, chunk.patches);
		else if (chunk.type === "user_message" && !this.known.has(chunk.message.id)) this.messages.push(chunk.message);
	}

	/** @returns {Message} the reply that the step of a chunk makes */
	#replyOf(/** @type {Chunk} */ { step }) {
		if (!this.#reply || this.#step !== step) this.messages.push(this.#reply = { role: "assistant", content: "" });
		this.#step = step;
		return this.#reply;
	}

	/** @returns {Message} */
	#result(/** @type {Chunk} */ { tool_call_id, tool_name, success, result, error }) {
		const content = !success ? `Error: ${error}` : typeof result === "string" ? result : this.write(result);
		return { role: "tool", tool_call_id, tool_name, content, success };
	}
}

// A call is asked about first, perhaps, and then starts.
const calls = (/** @type {Message} */ { tool_calls = [] }, /** @type {Chunk} */ chunk) => [
	...tool_calls.filter((each) => each.id !== chunk.tool_call_id), { id: chunk.tool_call_id, name: chunk.tool_name, arguments: chunk.arguments ?? chunk.input },
];

/** Applies RFC 6902 patches (add, replace, remove); only what changes is copied. `touched` gets the pointers. @param {any} state @param {{ op: string, path: string, value?: any }[]} patches @param {string[]} [touched] */
export function applyPatch(state, patches, touched = []) {
	return patches.reduce((before, { op, path, value }) => {
		const keys = path.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
		const parent = keys.slice(0, -1).reduce((each, key) => each?.[key], before);
		const end = Array.isArray(parent) && keys.at(-1) === "-" ? String(parent.length) : keys.at(-1) ?? "";
		touched.push(`${path.slice(0, path.lastIndexOf("/") + 1)}${end.replaceAll("~", "~0").replaceAll("/", "~1")}`);
		return keys.length ? changed(before, [...keys.slice(0, -1), end], op, value) : value;
	}, state);
}

/** @param {any} before @param {string[]} keys @param {string} op @param {any} value @returns {any} */
function changed(before, [key, ...rest], op, value) {
	const isList = Array.isArray(before);
	const copy = isList ? [...before] : { ...before };
	const set = (/** @type {any} */ next) => Object.defineProperty(copy, key, { value: next, writable: true, enumerable: true, configurable: true });
	if (rest.length) set(changed(copy[key] ?? {}, rest, op, value));
	else if (isList && op !== "replace") copy.splice(Number(key), op === "remove" ? 1 : 0, ...(op === "add" ? [value] : []));
	else if (op === "remove") delete copy[key];
	else set(value);
	return copy;
}
