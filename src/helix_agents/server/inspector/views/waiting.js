// Everything that waits for a person, oldest first, answered in place.

import { get, query } from "../api.js";
import { button, h, put } from "../dom.js";
import { ask } from "../parts/ask.js";
import { blank, broken, skeleton } from "../parts/blank.js";
import { sessionLink } from "../router.js";
import { shown } from "../text.js";

export function waiting(view, { search }) {
	const list = h("div.asks");
	document.title = "Waiting · helix";
	put(view, h("div.page", h("div.title", h("h1", "Waiting for people")), list));
	let stopped = false;

	async function load(cursor) {
		const timer = setTimeout(() => put(list, skeleton()), 200);
		try {
			const page = await get(`waiting${query({ cursor, limit: 50 })}`);
			if (!stopped) draw(page);
		} catch (error) {
			if (!stopped) put(list, broken(error, () => load(cursor)));
		} finally { clearTimeout(timer); }
	}

	function draw(page) {
		if (!page.items.length) return put(list, blank("Nothing waits", "Approvals and questions of client tools appear here while their run is suspended.", { glyph: "s-done" }));
		return put(list,
			page.items.map((each) => h("article.asked",
				h("p", h("a.mono.linkish", { href: sessionLink(each.root_session_id ?? each.session_id) }, shown(each.session_id))),
				ask(each, { sessionId: each.root_session_id ?? each.session_id, answered: () => load() }))),
			page.next_cursor && button("More", () => load(page.next_cursor)));
	}

	load(search.get("cursor"));
	return { stop() { stopped = true; } };
}
