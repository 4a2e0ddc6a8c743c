// The browser client of helix-agents: one conversation as a page shows it, live, across reloads and lost connections.
//
//     import { Helix } from "/client.js";
//     const chat = new Helix({ token }).open("chat-1", { agent: "companion" });
//     chat.subscribe(({ messages, questions, state }) => draw(messages, questions, state));
//     await chat.send("Hello");
//
// A snapshot holds what is stored; the chunks after its sequence show the open step. Every commit brings a new snapshot,
// so a page at rest shows exactly what is stored.

/** @typedef {{ id?: string, role: string, content: any, thinking?: string, tool_calls?: { id: string, name: string, arguments: any }[], tool_call_id?: string, success?: boolean, [key: string]: any }} Message */
/** @typedef {{ kind: "approval" | "client" | "outcome", tool_call_id: string, tool_name: string, input: any, question?: any, approval_id?: string | null, deadline_at?: number | null }} Question */
/** @typedef {{ approved: boolean, arguments?: object, reason?: string } | { result: any } | { error: string } | { happened: boolean | null, result?: any }} Answer */
/** @typedef {{ branch_id: string, message_id: string | null, message_count: number, created_at: number, is_active: boolean }} Branch */
/** @typedef {{ type: string, [key: string]: any }} Chunk */
/** @typedef {{ event: string, id: number, data: any, size: number }} Frame */
/** @typedef {"connecting" | "live" | "lost" | "over" | "new" | "gone" | Problem} Link `new`: the session does not exist yet. */
/** @typedef {{ messages: Message[], questions: Question[], state: any, status: string, session: any, link: Link }} View `messages`: the stored ones, then those of the open step, which grow. `session` is null while it does not exist. */
/** @typedef {{ signal?: AbortSignal, headers?: Record<string, string> }} CallOptions */

const [FIRST_WAIT, LONGEST_WAIT, LONGEST_SILENCE, SLICE, SEND_TRIES] = [500, 15_000, 60_000, 12, 6];
const [NOTHING, NEW_MESSAGES, EVERYTHING] = [0, 1, 2]; // what to read of the stored conversation
const FINAL = ["end", "fail", "pause", "truncated", "gone"];
const STARTS = ["run_started", "run_resumed"];
const SETTLES = [...STARTS, "run_interrupted", "run_suspended", "step_committed", "branch_switched", "output", "error"];
/** @type {Record<string, Question["kind"]>} */
const ASKS = { tool_approval_request: "approval", client_tool_request: "client", tool_outcome_request: "outcome" };

const sleep = (/** @type {number} */ wait) => new Promise((resolve) => { setTimeout(resolve, wait); });
const randomId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
const callKey = (/** @type {any} */ each) => `${each.sub_session_id ?? ""} ${each.tool_call_id}`;
const unreachable = (/** @type {AbortSignal | undefined} */ signal) => (/** @type {unknown} */ cause) => { throw signal?.aborted ? cause : new Problem(0, {}, cause); };

/** Sends a request again while the server does not respond. @template T @param {() => Promise<T>} request @param {() => boolean} isOver @returns {Promise<T>} */
async function persist(request, isOver, tries = Infinity) {
	for (let wait = FIRST_WAIT; ; wait = Math.min(wait * 2, LONGEST_WAIT)) {
		try {
			return await request();
		} catch (/** @type {any} */ error) {
			tries -= 1;
			if (!error.isPassing || !tries || isOver()) throw error;
			await sleep(wait);
		}
	}
}

/** A request that failed. `status` is 0 if the server did not respond; `code` is the snake_case name of the error. */
export class Problem extends Error {
	constructor(/** @type {number} */ status, /** @type {any} */ body = {}, /** @type {unknown} */ cause = undefined) {
		super(body.detail || body.title || (status ? `The server returned ${status}.` : "The server does not respond."), { cause });
		this.status = status;
		this.code = /** @type {string} */ (body.code ?? (status ? "unknown" : "unreachable"));
		this.body = body;
		this.isPassing = !status || status >= 500 || status === 429; // the same request may work later
	}
}

/** A server. `base`: where its routes are (default: beside this file). `token`: a string, or a function that returns one. */
export class Helix {
	/** @param {{ base?: string, token?: string | (() => string), parse?: (text: string) => any, write?: (value: any) => string }} [options] */
	constructor({ base = new URL(".", import.meta.url).href, token = "", parse = JSON.parse, write = JSON.stringify } = {}) {
		this.base = new URL(base, location.href);
		this.token = typeof token === "function" ? token : () => token;
		this.parse = parse;
		this.write = write;
	}

	/** Opens a conversation; without an id a new one. `agent` replies in a session that does not exist yet. @param {string} [id] @param {{ agent?: string }} [options] */
	open(id = `chat-${randomId()}`, { agent = "" } = {}) { return new Conversation(this, id, agent); }

	/** Sends a request and returns the JSON of the response, or throws a `Problem`. @param {string} method @param {string} path @param {any} [body] @param {CallOptions} [options] @returns {Promise<any>} */
	async call(method, path, body, options) {
		const response = await this.fetch(method, path, body, options);
		const text = await response.text().catch(unreachable(options?.signal));
		return response.status === 204 ? null : this.parse(text);
	}

	/** Sends a request and returns the response. @param {string} method @param {string} path @param {any} [body] @param {CallOptions} [options] */
	async fetch(method, path, body, { signal, headers } = {}) {
		const [token, isJson] = [this.token(), body !== undefined];
		const all = { ...headers, ...(token && { authorization: `Bearer ${token}` }), ...(isJson && { "content-type": "application/json" }) };
		const request = { method, signal, headers: all, body: isJson ? this.write(body) : undefined };
		const response = await fetch(new URL(path, this.base), request).catch(unreachable(signal));
		if (response.ok) return response;
		throw new Problem(response.status, await response.json().catch(() => ({})));
	}
}

/** Follows a stream of the server across lost connections; no chunk comes twice. `reopen`: connect again some time after a final frame. @param {Helix} helix @param {string} path @param {number} sequence @param {{ onFrame: (frame: Frame) => void, onLink?: (link: Link, wait: number) => void, reopen?: boolean }} handlers */
export function followStream(helix, path, sequence, { onFrame, onLink = () => {}, reopen = false }) {
	let [isClosed, isOver, nextWait, endWait, connection] = [false, false, FIRST_WAIT, () => {}, new AbortController()];

	async function follow() {
		while (!isClosed) {
			/** @type {Link} */
			const link = await read().then(() => (isOver ? "over" : "lost"), (error) => (error.status && !error.isPassing ? error : "lost"));
			if (isClosed) return;
			const wait = link === "over" ? LONGEST_WAIT : nextWait;
			nextWait = Math.min(nextWait * 2, LONGEST_WAIT);
			const waited = new Promise((resolve) => { endWait = () => resolve(null); setTimeout(resolve, wait); });
			onLink(link, wait);
			if (link !== "lost" && !(link === "over" && reopen)) return;
			await waited;
		}
	}

	async function read() {
		connection = new AbortController();
		const from = `${path}${path.includes("?") ? "&" : "?"}from_sequence=${sequence}`;
		const response = await helix.fetch("GET", from, undefined, { headers: { accept: "text/event-stream" }, signal: connection.signal });
		if (response.status === 204) isOver = true;
		const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
		for (let rest = "", drawn = performance.now(); reader; ) {
			// The server sends something every 15 seconds: a connection that is silent for much longer is dead.
			const timer = setTimeout(() => connection.abort(), LONGEST_SILENCE);
			const { value, done } = await reader.read().finally(() => clearTimeout(timer));
			const frames = (rest + (value ?? "")).split("\n\n");
			rest = frames.pop() ?? "";
			for (const text of frames) {
				if (!isClosed) accept(text);
				if (performance.now() - drawn > SLICE) drawn = await sleep(0).then(() => performance.now()); // lets the page draw
			}
			if (done || isClosed) return;
		}
	}

	function accept(/** @type {string} */ text) {
		/** @type {Record<string, string>} */
		const { event = "", id = "0", data } = Object.fromEntries(text.split("\n").map((line) => [line.split(":", 1)[0], line.slice(line.indexOf(":") + 1).trimStart()]));
		if (data === undefined || (event === "chunk" && Number(id) <= sequence)) return;
		isOver = FINAL.includes(event); // `follow=true` continues after an end: what counts is the last frame of the body
		if (event === "chunk") sequence = Number(id);
		if (event === "open") nextWait = FIRST_WAIT;
		if (event === "open") onLink("live", 0);
		onFrame({ event, id: Number(id), data: helix.parse(data), size: text.length });
	}

	follow();
	return { retryNow: () => endWait(), close: () => { isClosed = true; connection.abort(); endWait(); } };
}

/** A session as a page shows it. `Helix.open` makes it. */
export class Conversation {
	#listeners = /** @type {Set<(view: View) => void>} */ (new Set());
	#stored = /** @type {Message[]} */ ([]);
	#recent = /** @type {[number, Chunk][]} */ ([]); // the chunks after `covered`, which is where the snapshot ends
	#covered = -1;
	#open = openStep({}, []);
	#questions = /** @type {Map<string, Question>} */ (new Map());
	#stream = /** @type {ReturnType<typeof followStream> | undefined} */ (undefined);
	#wanted = NOTHING;
	#isReading = false;
	#isClosed = false;
	#isChanged = false;
	#link = /** @type {Link} */ ("connecting");
	session = /** @type {any} */ (null);

	constructor(/** @type {Helix} */ helix, /** @type {string} */ id, /** @type {string} */ agent) {
		this.helix = helix;
		this.id = id;
		this.agent = agent;
		this.view = this.#draw();
		this.refresh();
	}

	/** Calls `listener` with the view, now and whenever it changes; returns a function that unsubscribes. */
	subscribe = (/** @type {(view: View) => void} */ listener) => {
		this.#listeners.add(listener);
		listener(this.view);
		return () => { this.#listeners.delete(listener); };
	};

	/** Sends a string, the parts of a content, or whole messages. They are stored once, even if they have to be sent again. @param {string | any[]} content @param {Record<string, any>} [options] more members of `POST /execute`, for example `if_running` @returns {Promise<{ session_id: string, run_id: string }>} */
	async send(content, options = {}) {
		const message = typeof content === "string" || content.every((each) => each.role) ? content : [{ role: "user", content }];
		const body = { agent_type: this.session?.agent_type ?? this.agent, session_id: this.id, message, ...options };
		const headers = { "idempotency-key": randomId() };
		return persist(() => this.#post("execute", body, headers), () => this.#isClosed, SEND_TRIES);
	}

	/** Answers a question. An approval is named by its own id: if something else is asked since then, nothing is approved. @param {Question} question @param {Answer} answer @returns {Promise<{ receipt: string, can_resume: boolean }>} */
	async answer(question, answer) {
		const { approval_id, tool_call_id } = question;
		const receipt = await this.#act("tool-results", { ...(approval_id ? { approval_id } : { tool_call_id }), ...answer });
		for (const [key, each] of this.#questions) if (each.tool_call_id === tool_call_id && each.approval_id === approval_id) this.#questions.delete(key);
		return receipt;
	}

	/** Runs the turn of an assistant message again (default: the last one); what it was becomes a branch. @param {string} [messageId] */
	regenerate(messageId) { return this.#act("regenerate", { message_id: messageId }); }
	/** Replaces a user message and runs from there; what followed becomes a branch. @param {string} messageId @param {string | any[]} content */
	edit(messageId, content) { return this.#act("edit", { message_id: messageId, content }); }
	/** Lists the branches. @returns {Promise<Branch[]>} */
	async branches() { return (await this.helix.call("GET", this.#path("branches"))).items; }
	/** Brings a branch back, with its state. @param {string} branchId */
	switchTo(branchId) { return this.#act(`branches/${encodeURIComponent(branchId)}/switch`); }
	/** Stops the run at the next safe point. @param {string} [reason] */
	stop(reason) { return this.#act("interrupt", { reason }); }
	/** Continues a run that was stopped. */
	resume() { return this.#act("resume"); }
	/** Runs a failed turn again. */
	retry() { return this.#act("retry"); }

	/** Reads what is new, and connects now instead of after a wait. */
	refresh() {
		this.#stream?.retryNow();
		this.#read(NEW_MESSAGES);
	}

	/** Stops following. The run continues. */
	close() {
		this.#isClosed = true;
		this.#stream?.close();
	}

	#path(/** @type {string} */ verb) { return `sessions/${encodeURIComponent(this.id)}/${verb}`; }
	#act(/** @type {string} */ verb, /** @type {any} */ body = {}) { return this.#post(this.#path(verb), body); }

	async #post(/** @type {string} */ path, /** @type {any} */ body, headers = {}) {
		const result = await this.helix.call("POST", path, body, { headers });
		this.refresh();
		return result;
	}

	// One snapshot at a time; what is wanted since then is read afterwards, once.
	async #read(/** @type {number} */ wanted) {
		this.#wanted = Math.max(this.#wanted, wanted);
		if (this.#isReading) return;
		this.#isReading = true;
		const refused = (/** @type {Problem} */ error) => this.#isClosed || this.#tell(error.code !== "session_not_found" ? error : this.session ? "gone" : "new");
		while (this.#wanted && !this.#isClosed) await persist(() => this.#snapshot(), () => this.#isClosed).catch(refused);
		this.#isReading = false;
	}

	async #snapshot() {
		const wanted = this.#wanted;
		const offset = wanted === EVERYTHING || !this.session ? 0 : this.#stored.length;
		this.#wanted = NOTHING;
		const found = await this.helix.call("GET", `${this.#path("snapshot")}?offset=${offset}`).catch((error) => {
			if (error.isPassing) this.#wanted = Math.max(this.#wanted, wanted);
			if (error.isPassing && !this.session) this.#tell("lost");
			throw error;
		});
		if (found.message_count < offset) return this.#read(EVERYTHING);
		const isBack = found.sequence < this.#covered; // after a restore, for example: it needs chunks that were dropped
		this.session = found.session;
		this.#stored = [...this.#stored.slice(0, offset), ...found.messages];
		this.#covered = found.sequence;
		this.#reopen(isBack ? [] : this.#recent.filter(([sequence]) => sequence > found.sequence));
		if (isBack || !this.#stream) this.#follow();
		return this.#tell();
	}

	#reopen(/** @type {[number, Chunk][]} */ chunks) {
		this.#recent = chunks;
		this.#open = openStep(this.session?.custom_state ?? {}, this.#stored);
		for (const [, chunk] of chunks) addChunk(this.#open, chunk, this.helix.write);
	}

	#follow() {
		this.#stream?.close();
		this.#questions.clear();
		const onLink = (/** @type {Link} */ link) => {
			const status = link instanceof Problem ? link.status : 0;
			if (status === 410 || status === 416) return this.#startOver();
			if (link === "live" && this.#link === "lost") this.#read(NEW_MESSAGES);
			return this.#tell(status === 404 ? "gone" : link);
		};
		this.#stream = followStream(this.helix, `stream/${encodeURIComponent(this.id)}?follow=true`, this.#covered, { reopen: true, onFrame: (frame) => this.#frame(frame), onLink });
	}

	// The stream no longer has what follows our position: read everything again, and follow from there.
	#startOver() {
		this.#covered = Infinity;
		this.#read(EVERYTHING);
	}

	#frame(/** @type {Frame} */ { event, id, data }) {
		if (event === "chunk") return this.#chunk(id, data);
		if (event === "truncated") return this.#startOver();
		if (event === "gone") this.close();
		if (event === "pause") this.#questions = new Map(data.suspended.map((/** @type {Question} */ each) => [callKey(each), each]));
		if (event !== "open") this.#read(NEW_MESSAGES);
		return this.#tell(event === "gone" ? "gone" : undefined);
	}

	#chunk(/** @type {number} */ sequence, /** @type {Chunk} */ chunk) {
		const [type, isOwn] = [chunk.type, !chunk.sub_session_id];
		if (ASKS[type]) this.#questions.set(callKey(chunk), /** @type {any} */ ({ ...chunk, kind: ASKS[type] }));
		if (type === "tool_start" || type === "tool_end") this.#questions.delete(callKey(chunk));
		if (isOwn && STARTS.includes(type)) this.#questions.clear();
		if (isOwn && SETTLES.includes(type)) this.#read(NEW_MESSAGES);
		if (isOwn && type === "stream_resync") this.#recent = []; // the stream has dropped them, too
		// What comes again must not be appended to what it replaces, which was shown before the snapshot comes.
		if (isOwn && type === "stream_rewound") this.#reopen([]);
		if (isOwn && (type === "stream_resync" || type === "stream_rewound")) this.#read(EVERYTHING);
		else if (sequence > this.#covered) {
			this.#recent.push([sequence, chunk]);
			addChunk(this.#open, chunk, this.helix.write);
		}
		this.#tell();
	}

	// Several changes in a row are one view.
	#tell(link = this.#link) {
		this.#link = link;
		if (!this.#isChanged) queueMicrotask(() => {
			this.#isChanged = false;
			this.view = this.#draw();
			for (const listener of this.#listeners) listener(this.view);
		});
		this.#isChanged = true;
	}

	/** @returns {View} */
	#draw() {
		const pending = this.session?.pending_client_tool_calls ?? {};
		const questions = [...this.#questions.values()].filter((each) => !pending[each.tool_call_id]?.submitted_at);
		const messages = [...this.#stored, ...this.#open.messages.map((each) => ({ ...each }))];
		return { messages, questions, state: this.#open.state, status: this.session?.status ?? "new", session: this.session, link: this.#link };
	}
}

/** @typedef {{ state: any, messages: Message[], known: Set<string | undefined>, reply?: Message, step?: number }} OpenStep what chunks show before their step is stored */
/** @returns {OpenStep} */
const openStep = (/** @type {any} */ state, /** @type {Message[]} */ stored) => ({ state, messages: [], known: new Set(stored.map((each) => each.id)) });

function addChunk(/** @type {OpenStep} */ open, /** @type {Chunk} */ chunk, /** @type {(value: any) => string} */ write) {
	const { type, tool_call_id, tool_name, success, result, error } = chunk;
	const reply = () => {
		if (!open.reply || open.step !== chunk.step) open.messages.push(open.reply = { role: "assistant", content: "" });
		open.step = chunk.step;
		return open.reply;
	};
	if (chunk.sub_session_id) return;
	if (type === "text_delta") reply().content += chunk.delta;
	else if (type === "thinking") reply().thinking = (reply().thinking ?? "") + chunk.content;
	else if (type === "state_patch") open.state = applyPatch(open.state, chunk.patches);
	else if (type === "user_message" && !open.known.has(chunk.message.id)) open.messages.push(chunk.message);
	else if (type === "tool_end") {
		const content = !success ? `Error: ${error}` : typeof result === "string" ? result : write(result);
		open.messages.push({ role: "tool", tool_call_id, tool_name, content, success });
	} else if (type === "tool_start" || ASKS[type]) { // perhaps one after the other
		const others = reply().tool_calls?.filter((each) => each.id !== tool_call_id) ?? [];
		reply().tool_calls = [...others, { id: tool_call_id, name: tool_name, arguments: chunk.arguments ?? chunk.input }];
	}
}

const copied = (/** @type {any} */ value) => (Array.isArray(value) ? [...value] : { ...value });
/** Sets an own member, whatever its name, and returns the value. @param {any} target @param {string} key @param {any} value @returns {any} */
const define = (target, key, value) => Object.defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true })[key];

/** Applies RFC 6902 patches (add, replace, remove); only what changes is copied. `touched` gets the pointers. @param {any} state @param {{ op: string, path: string, value?: any }[]} patches @param {string[]} [touched] */
export function applyPatch(state, patches, touched = []) {
	return patches.reduce((before, { op, path, value }) => {
		const keys = path.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
		const [last, root] = [keys.pop(), copied(before)];
		const parent = keys.reduce((each, key) => define(each, key, copied(each[key])), root);
		const key = Array.isArray(parent) && last === "-" ? String(parent.length) : last;
		touched.push(key === last ? path : `${path.slice(0, -1)}${key}`);
		if (key === undefined) return value;
		if (Array.isArray(parent) && op !== "replace") parent.splice(Number(key), op === "remove" ? 1 : 0, ...(op === "add" ? [value] : []));
		else if (op === "remove") delete parent[key];
		else define(parent, key, value);
		return root;
	}, state);
}
