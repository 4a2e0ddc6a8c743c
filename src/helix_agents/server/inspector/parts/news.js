// Screen reader announcements about a session: its status, questions and answers, never fragments of text.

import { h } from "../dom.js";
import { word } from "../status.js";

const KEPT = 5;

export function tellNews(store) {
	const region = document.getElementById("news");
	let known = null;
	region.replaceChildren();
	store.on("session", () => {
		const { session, story } = store;
		const now = { status: session.status, asked: new Set(store.waiting.map((each) => each.tool_call_id)), count: story.count };
		const news = known === null ? [] : [
			now.count > known.count && story.items.at(-1)?.role === "assistant" && `${session.agent_type} answered`,
			...store.waiting.filter((each) => !known.asked.has(each.tool_call_id)).map((each) => `${each.tool_name} waits for ${each.kind === "approval" ? "your approval" : "your answer"}`),
			now.status !== known.status && word(now.status),
		].filter(Boolean);
		known = now;
		region.append(...news.map((line) => h("p", line)));
		while (region.children.length > KEPT) region.firstChild.remove();
	});
}
