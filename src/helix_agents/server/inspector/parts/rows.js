// Any number of rows of equal height: only the visible ones are in the document.

const SPARE = 8;

export class Rows {
	#height;
	#draw;
	#count = 0;
	#rows = new Map();
	#from = -1;
	#to = -1;

	constructor(height, draw) {
		this.#height = height;
		this.#draw = draw;
		this.inner = document.createElement("div");
		this.inner.className = "rows";
		this.node = document.createElement("div");
		this.node.className = "scroll";
		this.node.append(this.inner);
		this.node.addEventListener("scroll", () => this.#window(), { passive: true });
		this.atEnd = true;
		this.node.addEventListener("scroll", () => { this.atEnd = this.node.scrollTop + this.node.clientHeight >= this.node.scrollHeight - height * 2; }, { passive: true });
	}

	set(count, { follow = false } = {}) {
		this.#count = count;
		this.inner.style.height = `${count * this.#height}px`;
		this.#from = -1;
		this.#rows.clear();
		this.inner.replaceChildren();
		if (follow && this.atEnd) this.node.scrollTop = this.node.scrollHeight;
		this.#window();
	}

	reveal(place) {
		const top = place * this.#height;
		const { scrollTop, clientHeight } = this.node;
		if (top < scrollTop || top + this.#height > scrollTop + clientHeight) this.node.scrollTop = top - clientHeight / 2;
	}

	#window() {
		const from = Math.max(0, Math.floor(this.node.scrollTop / this.#height) - SPARE);
		const to = Math.min(this.#count, Math.ceil((this.node.scrollTop + (this.node.clientHeight || 600)) / this.#height) + SPARE);
		if (from === this.#from && to === this.#to) return;
		this.#from = from;
		this.#to = to;
		for (const [place, row] of this.#rows) if (place < from || place >= to) { row.remove(); this.#rows.delete(place); }
		for (let place = from; place < to; place += 1) {
			if (this.#rows.has(place)) continue;
			const row = this.#draw(place);
			row.style.top = `${place * this.#height}px`;
			this.#rows.set(place, row);
			this.inner.append(row);
		}
	}
}
