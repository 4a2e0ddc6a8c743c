// The bar above a session: the latest error, or that the connection is lost.

import { button, h, put } from "../dom.js";
import { go, link } from "../router.js";
import { shown } from "../text.js";

const SHOWN_FOR = 8000;

export class Banner {
	#timer = 0;

	constructor() {
		this.node = h("div.banner", { role: "status", hidden: true });
	}

	// Without buttons it disappears after a while.
	show(text, actions = []) {
		clearTimeout(this.#timer);
		this.node.hidden = false;
		put(this.node, h("span.grow", shown(text)), actions);
		if (!actions.length) this.#timer = setTimeout(() => this.hide(), SHOWN_FOR);
	}

	hide() {
		clearTimeout(this.#timer);
		this.node.hidden = true;
	}

	drawLink(store) {
		document.body.classList.toggle("stale", store.link === "lost");
		if (store.link === "lost") return this.show(`The connection is lost. Trying again; the stream continues from chunk ${store.sequence}.`, [button("Try now", () => store.retryNow())]);
		if (store.link === "gone") return this.show("This session was deleted.", [button("All sessions", () => go(link([])))]);
		if (store.link instanceof Error) return this.show(store.link.message, [button("Try now", () => store.reload())]);
		return this.hide();
	}

	stop() {
		clearTimeout(this.#timer);
		document.body.classList.remove("stale");
	}
}
