// Follows one stream of the server and never shows a chunk twice. `fetch` instead of EventSource: the token travels
// in a header, and a refusal has a reason.
//
// `handle(frame)` gets {event, id, data}; `tell(state)` gets "live", "lost" (with a retry time), "over" or a Problem.

import { headers, refusal } from "./api.js";
import { parseJson } from "./json.js";

const FINAL = new Set(["end", "fail", "pause", "truncated", "gone"]);
const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
const SLICE = 12;

export class Follower {
	#address;
	#handle;
	#tell;
	#abort = new AbortController();
	#wait = FIRST_WAIT;
	#timer = 0;
	#stopped = false;
	#isOver = false;

	constructor(address, fromSequence, { handle, tell = () => {} }) {
		this.#address = address;
		this.sequence = fromSequence;
		this.#handle = handle;
		this.#tell = tell;
		this.#connect();
	}

	stop() {
		this.#stopped = true;
		clearTimeout(this.#timer);
		this.#abort.abort();
	}

	retryNow() {
		if (!this.#timer) return;
		clearTimeout(this.#timer);
		this.#timer = 0;
		this.#connect();
	}

	async #connect() {
		this.#timer = 0;
		try {
			const over = await this.#read();
			if (this.#stopped) return;
			if (over) return this.#tell("over");
		} catch (error) {
			if (this.#stopped) return;
			if (error.status && error.status < 500 && error.status !== 429) return this.#tell(error);
		}
		this.#tell("lost", this.#wait);
		this.#timer = setTimeout(() => this.#connect(), this.#wait);
		this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
	}

	async #read() {
		const joint = this.#address.includes("?") ? "&" : "?";
		const response = await fetch(`${this.#address}${joint}from_sequence=${this.sequence}`, { headers: headers({ accept: "text/event-stream" }), signal: this.#abort.signal });
		if (!response.ok) throw await refusal(response);
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
		let rest = "";
		let begun = performance.now();
		for (;;) {
			const { value, done } = await reader.read();
			// `follow=true` goes on behind an end: a stream is over when its body is, and its last frame said so.
			if (done) return this.#isOver;
			rest += value;
			const frames = rest.split("\n\n");
			rest = frames.pop();
			for (const text of frames) {
				if (this.#stopped) return true;
				this.#accept(parse(text));
				// A long replay lets the page draw in between.
				if (performance.now() - begun < SLICE) continue;
				await new Promise((resolve) => { setTimeout(resolve); });
				begun = performance.now();
			}
		}
	}

	#accept(frame) {
		if (frame === null) return;
		this.#isOver = FINAL.has(frame.event);
		if (frame.event === "open") {
			this.#wait = FIRST_WAIT;
			this.#tell("live");
		}
		if (frame.event === "chunk") {
			if (frame.id <= this.sequence) return;
			this.sequence = frame.id;
		}
		this.#handle(frame);
	}
}

function parse(text) {
	const frame = { event: "message", id: 0, data: null, size: text.length };
	const data = [];
	for (const line of text.split("\n")) {
		if (line.startsWith("event:")) frame.event = line.slice(6).trim();
		else if (line.startsWith("id:")) frame.id = Number(line.slice(3));
		else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
	}
	if (!data.length) return null;
	frame.data = parseJson(data.join("\n"));
	return frame;
}
