// The scroller of a conversation: it stays at the end until the reader scrolls up, and then says how much is new below.

import { button, put } from "../dom.js";

const NEAR = 48;

export class Tail {
	#log;
	#narrow;
	#unseen = 0;
	#scrolled = () => this.#look();
	follows = true;

	constructor(log, narrow) {
		this.#log = log;
		this.#narrow = narrow;
		this.jump = button("", () => this.toEnd(), { kind: "new", hidden: true });
		log.addEventListener("scroll", this.#scrolled, { passive: true });
		document.addEventListener("scroll", this.#scrolled, { passive: true });
	}

	// A phone scrolls the whole page, other devices the log.
	get scroller() {
		return this.#narrow.matches ? document.scrollingElement : this.#log;
	}

	get root() {
		return this.#narrow.matches ? null : this.#log;
	}

	toEnd() {
		this.follows = true;
		this.#read();
		this.#toBottom();
	}

	// Draws, and stays scrolled to the end if it was there.
	keep(draw) {
		const was = this.follows;
		draw();
		if (was) this.#toBottom();
	}

	tellNew(many) {
		if (this.follows || many <= 0) return;
		this.#unseen += many;
		this.jump.hidden = false;
		put(this.jump, `${this.#unseen} new`);
	}

	stop() {
		document.removeEventListener("scroll", this.#scrolled);
	}

	#read() {
		this.#unseen = 0;
		this.jump.hidden = true;
	}

	#look() {
		const { scrollTop, clientHeight, scrollHeight } = this.scroller;
		this.follows = scrollTop + clientHeight >= scrollHeight - NEAR;
		if (this.follows) this.#read();
	}

	#toBottom() {
		this.scroller.scrollTop = this.scroller.scrollHeight;
	}
}
