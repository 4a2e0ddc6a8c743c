// What screen readers hear of a session: its status, questions and finished messages, never single pieces of text.

import { say } from "../dom.js";
import { word } from "../status.js";
import { short } from "../text.js";

const LONGEST = 300;

export function tellNews(store) {
	let known = null;
	store.on("session", () => {
		const { session, story } = store;
		const now = { status: session.status, asked: new Set(store.waiting.map((each) => each.tool_call_id)), count: story.count };
		if (known) {
			const last = story.items.at(-1);
			const news = [
				now.count > known.count && last?.role === "assistant" && last.text && `${session.agent_type}: ${short(last.text, LONGEST)}`,
				...store.waiting.filter((each) => !known.asked.has(each.tool_call_id)).map((each) => `${each.tool_name} waits for ${each.kind === "approval" ? "your approval" : "your answer"}`),
				now.status !== known.status && word(now.status),
			].filter(Boolean);
			if (news.length) say(news.join(". "), "news");
		}
		known = now;
	});
}
