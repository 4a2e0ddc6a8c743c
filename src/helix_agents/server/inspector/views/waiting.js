// Everything that waits for a person, oldest first, answered in place. New questions appear without a reload; text that
// a person is typing is kept.

import { get, query } from "../api.js";
import { button, h, keepFocus, put } from "../dom.js";
import { useKeys } from "../keys.js";
import { ask, questionKey } from "../parts/ask.js";
import { blank, broken, skeleton } from "../parts/blank.js";
import { go, link, sessionLink } from "../router.js";
import { shown } from "../text.js";

const REFRESH_EVERY = 4000;

export function waiting(view, { search }) {
	const list = h("div.asks");
	const known = new Map();
	let cursor = search.get("cursor");
	let stopped = false;
	let isBroken = false;
	document.title = "Waiting · helix";
	put(view, h("div.page", h("div.title", h("h1", "Waiting for people")), list));

	async function load() {
		const asked = cursor;
		const timer = setTimeout(() => { if (!list.children.length) put(list, skeleton()); }, 200);
		try {
			const page = await get(`waiting${query({ cursor: asked, limit: 50 })}`);
			if (stopped || cursor !== asked) return; // the person moved to another page
			keepFocus(list, () => draw(page));
			isBroken = false;
		} catch (error) {
			if (!stopped && cursor === asked && !known.size) { isBroken = true; put(list, broken(error, load)); }
		} finally { clearTimeout(timer); }
	}

	function draw(page) {
		const ids = new Set(page.items.map(questionKey));
		for (const id of known.keys()) if (!ids.has(id)) known.delete(id);
		if (!page.items.length) return put(list, blank("Nothing waits", "Approvals and questions of client tools appear here while their run is suspended.", { glyph: "s-done" }));
		for (const each of page.items) if (!known.has(questionKey(each))) known.set(questionKey(each), question(each));
		const wanted = [...page.items.map((each) => known.get(questionKey(each))), page.next_cursor ? button("More", () => go(link(["waiting"], { cursor: page.next_cursor })), { key: "n" }) : null].filter(Boolean);
		// Change only what differs: a person may be writing an answer.
		for (const node of [...list.childNodes]) if (!wanted.includes(node)) node.remove();
		wanted.forEach((node, place) => { if (list.childNodes[place] !== node) list.insertBefore(node, list.childNodes[place] ?? null); });
		return list;
	}

	function question(each) {
		const root = each.root_session_id ?? each.session_id;
		return h("article.asked", { tabindex: "-1" },
			h("p", h("a.mono.linkish", { href: sessionLink(root) }, shown(each.session_id)), h("span.dim", shown([each.agent_type, each.user_id].filter(Boolean).join(", ")))),
			ask(each, { sessionId: root, answered: load }));
	}

	// `j` and `k` go from question to question, `a` and `r` to the buttons of the one in focus.
	const here = () => document.activeElement.closest?.("article.asked");
	const move = (by) => {
		const all = [...list.querySelectorAll("article.asked")];
		all[Math.min(all.length - 1, Math.max(0, all.indexOf(here()) + by))]?.focus();
	};
	const press = (name) => (here() ?? list).querySelector(`.ask:not(.answered) [data-act=${name}]`)?.focus();
	const release = useKeys({
		j: () => move(1), k: () => move(-1), a: () => press("approve"), r: () => press("reject"), n: () => list.querySelector(":scope > .btn")?.click(),
		Enter: () => here()?.querySelector("a").click(),
	});
	const timer = setInterval(() => { if (!document.hidden && !isBroken) load(); }, REFRESH_EVERY);
	load();
	return {
		moved(_, next) { cursor = next.get("cursor"); known.clear(); put(list); load(); },
		stop() { stopped = true; clearInterval(timer); release(); },
	};
}
