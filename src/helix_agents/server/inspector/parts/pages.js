// A long list of items of any height, in pages: drawn near the viewport, elsewhere an empty block with the page's
// height. The document stays small however long the list is, and no frame draws more than it has time for.

import { keepFocus } from "../dom.js";

const PAGE = 16;
const GUESS = 120;
const BUDGET = 8;

export class Pages {
	#draw;
	#pages = new Map();
	#wanted = new Set();
	#frame = 0;
	#watch = null;

	constructor(root, node, draw) {
		this.node = node;
		this.#draw = draw;
		this.watch(root);
	}

	// Observes another scroller: a phone scrolls the whole page.
	watch(root) {
		this.#watch?.disconnect();
		this.#watch = new IntersectionObserver((entries) => entries.forEach((entry) => this.#seen(entry)), { root, rootMargin: "1200px 0px" });
		for (const page of this.#pages.values()) this.#watch.observe(page.node);
	}

	// Sets the items, ordered by `place`, which decides the page: items may be added at both ends. Pages whose items are
	// the same objects keep their elements.
	set(items) {
		const groups = Map.groupBy(items, (item) => Math.floor(item.place / PAGE));
		for (const [number, page] of this.#pages) if (!groups.has(number)) this.#drop(number, page);
		let next = this.node.firstChild;
		for (const [number, group] of groups) {
			const page = this.#pages.get(number) ?? this.#add(number);
			if (page.node === next) next = next.nextSibling;
			else this.node.insertBefore(page.node, next);
			const changed = page.items.length !== group.length || group.some((item, at) => item !== page.items[at] || item.changed);
			page.items = group;
			if (changed && page.isDrawn) this.#fill(page);
			else if (changed) page.node.style.height = `${page.height || group.length * GUESS}px`;
		}
	}

	redraw() {
		for (const page of this.#pages.values()) if (page.isDrawn) this.#fill(page);
	}

	// The element of an item, drawn now if necessary.
	reveal(item) {
		if (!item) return undefined;
		const page = this.#pages.get(Math.floor(item.place / PAGE));
		if (page && !page.isDrawn) this.#fill(page);
		return page?.node.children[page.items.indexOf(item)];
	}

	stop() {
		this.#watch.disconnect();
		cancelAnimationFrame(this.#frame);
	}

	#add(number) {
		const page = { node: document.createElement("div"), items: [], isDrawn: false, height: 0 };
		page.node.page = page;
		this.#pages.set(number, page);
		this.#watch.observe(page.node);
		return page;
	}

	#drop(number, page) {
		this.#pages.delete(number);
		this.#wanted.delete(page);
		this.#watch.unobserve(page.node);
		page.node.remove();
	}

	#seen({ target: { page }, isIntersecting, boundingClientRect }) {
		page.top = Math.abs(boundingClientRect.top);
		if (isIntersecting && !page.isDrawn) this.#want(page);
		if (isIntersecting) return;
		this.#wanted.delete(page);
		if (!page.isDrawn) return;
		page.isDrawn = false;
		page.height = boundingClientRect.height;
		page.node.style.height = `${page.height}px`;
		page.node.replaceChildren();
	}

	#want(page) {
		this.#wanted.add(page);
		this.#frame ||= requestAnimationFrame(() => this.#work());
	}

	#work() {
		const until = performance.now() + BUDGET;
		this.#frame = 0;
		for (const page of [...this.#wanted].sort((a, b) => a.top - b.top)) {
			if (performance.now() > until) return this.#want(page);
			this.#wanted.delete(page);
			this.#fill(page);
		}
		return undefined;
	}

	#fill(page) {
		page.isDrawn = true;
		page.node.style.height = "";
		keepFocus(page.node, () => page.node.replaceChildren(...page.items.map((item) => this.#draw(item))));
		for (const item of page.items) item.changed = false;
	}
}
