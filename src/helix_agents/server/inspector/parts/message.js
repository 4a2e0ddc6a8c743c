// One entry of the conversation: who spoke, what was thought, the text, and the calls in one box.

import { get, path } from "../api.js";
import { h, icon, put } from "../dom.js";
import { Story } from "../model/story.js";
import { sessionLink } from "../router.js";
import { glyph } from "../status.js";
import { at, duration, inFull, money, number, plural, shown, short } from "../text.js";
import { box, gist, io } from "./value.js";

const CALL_STATE = { asked: "active", running: "active", done: "completed", failed: "failed", waiting: "suspended_client_tool" };
const LONG_TEXT = 20_000;
const MOST_STORIES = 50;
// What the reader has folded or unfolded, since entries are redrawn while they grow and when they become visible.
const folds = new Map();

function fold(kind, key, summary, fill, { open = false } = {}) {
	const node = h(`details.${kind}`, { open: folds.get(key) ?? open }, h("summary", { "data-key": key }, icon("i-fold", "i fold-mark"), summary));
	const show = () => { if (node.open && node.children.length === 1) node.append(fill()); };
	node.firstChild.addEventListener("click", () => folds.set(key, !node.open));
	node.addEventListener("toggle", show);
	show();
	return node;
}

function speaker(item, agent) {
	if (item.role === "user") return "You";
	return item.role === "assistant" ? agent : item.role;
}

function text(value, streaming) {
	if (value.length <= LONG_TEXT) return h("div.text", { dir: "auto" }, shown(value));
	return streaming ? h("div.text", { dir: "auto" }, "…", shown(value.slice(-LONG_TEXT))) : box(value);
}

const spent = (usage) => usage && [usage.tokens ? `${number(usage.tokens)} tok` : "", money(usage.cost)].filter(Boolean).join("\u2002");

export function message(item, context) {
	const { agent, sessionId, usage } = context;
	const isAgent = item.role === "assistant";
	const took = item.thoughtMs > 0 ? `Thought for ${duration(item.thoughtMs)}` : "Thought";
	return h(`article.msg.${isAgent ? "assistant" : "user"}`, { id: item.key, tabindex: "-1" },
		h("time", { title: inFull(item.at) }, at(item.at)),
		h("div.said",
			h("header.who", h("b", shown(speaker(item, agent))), item.step !== null && isAgent && h("span.dim", `step ${item.step}`), item.interrupted && h("span.tag", "interrupted"), item.finish && item.finish !== "stop" && item.finish !== "tool_calls" && h("span.tag.amber", shown(item.finish)), h("span.grow"), isAgent && h("span.dim", spent(usage?.get(item.step))), context.rewrite?.(item)),
			item.thinking && fold("thought", `t ${sessionId} ${item.step ?? item.key}`, took, () => text(item.thinking)),
			item.text && text(item.text, item.streaming),
			item.streaming && h("span.cursor", { "aria-hidden": "true" }),
			calls(item.calls, context)));
}

function calls(map, context) {
	const all = [...map.values()];
	const plain = all.filter((call) => !call.ask && !call.child);
	return [
		plain.length > 0 && h("div.calls", all.length > 1 && h("p.calls-head", `${plural(all.length, "call")} in parallel`), plain.map((each) => call(each, context))),
		all.filter((each) => !plain.includes(each)).map((each) => (each.ask && context.question ? context.question(each.ask) : each.child ? child(each, context) : call(each, context))),
	];
}

function call(each, { times, live }) {
	const isOpen = each.state === "asked" || each.state === "running";
	const running = isOpen && live !== false;
	const span = times?.get(each.id);
	const [from, to] = span ? [span.from, span.to] : [each.startedAt, each.endedAt];
	const input = each.input === undefined ? short(each.inputText ?? "", 90) : gist(each.input);
	return fold("call", each.id, [glyph(isOpen && !running ? "interrupted" : CALL_STATE[each.state]), h("b.mono", shown(each.name)), h("span.mono.dim.clip.grow", shown(input)), each.error && h("span.red.clip", shown(short(each.error, 60))), each.answeredBy && h("span.tag", "answered by ", shown(each.answeredBy)), h("span.dim", running ? "running" : isOpen ? "not finished" : to ? duration(to - from) : "")], () =>
		h("div.ios",
			io("Arguments", each.input ?? each.inputText ?? ""),
			each.error ? io("Error", each.error) : each.result === undefined ? h("p.dim", "No result yet.") : io(Array.isArray(each.result) ? `Result, ${plural(each.result.length, "item")}` : "Result", each.result)));
}

// A sub-agent: live text from the parent's stream, the stored conversation when a person unfolds it.
function child(each, context) {
	const { id, agent, status, draft } = each.child ?? { id: "", agent: each.name };
	const state = each.state === "done" ? "completed" : each.state === "failed" ? "failed" : status ?? "active";
	const name = agent ?? each.name;
	const below = context.below?.(each.id) ?? [];
	const head = [glyph(state), h("b.mono", shown(name)), h("span.dim.grow", "sub-agent"), id && h("a.linkish", { href: sessionLink(id) }, "Open session")];
	const node = fold("sub-box", each.id, head, () => {
		const body = h("div");
		if (draft && !draft.isEmpty) put(body, draft.steps.map((step) => openStep(step, name, { live: context.live, question: context.question, sessionId: id })));
		else stored(body, id, name, state);
		const drawn = new Set([...draft?.calls() ?? []].filter((one) => one.ask).map((one) => one.id));
		return h("div.sub", h("p.mono.dim", shown(id)), body, below.filter((one) => !drawn.has(one.tool_call_id)).map(context.question));
	}, { open: below.length > 0 || (Boolean(draft) && state !== "completed") });
	node.classList.toggle("live", state === "active");
	return node;
}

// The enclosing entry is redrawn often: draw what is known immediately, and load again when the status changes.
const stories = new Map();

async function stored(body, id, agent, status) {
	const draw = (story) => put(body, story.items.map((item) => message(item, { agent, sessionId: id })));
	const known = stories.get(id);
	if (known) draw(known.story);
	if (known?.status === status) return;
	try {
		const found = await get(path("sessions", id, "messages") + "?limit=200");
		const story = new Story();
		story.add(found.items);
		stories.delete(id);
		stories.set(id, { story, status });
		if (stories.size > MOST_STORIES) stories.delete(stories.keys().next().value);
		draw(story);
	} catch (error) { if (!known) put(body, h("p.dim", shown(error.message))); }
}

// The open step, drawn from chunks.
export function openStep(step, agent, context) {
	const item = { key: `open-${step.step}`, role: "assistant", text: step.text, thinking: step.thinking, thoughtMs: step.thoughtUntil - step.thoughtAt, calls: step.calls, step: step.step, at: step.firstAt, streaming: !step.done && context.live && !step.calls.size };
	return message(item, { ...context, agent });
}

export function cut(each, workerOf) {
	const line = (glyph, what, note) => h("li", icon(glyph), h("b", shown(short(what, 60))), h("span.dim", note));
	return h("article.cut", { label: "Crash and take-over" }, h("time", { title: inFull(each.from) }, at(each.from)),
		h("ul",
			line("i-bolt", `${workerOf(each.before)} stopped${each.step === undefined ? "" : ` in step ${each.step}`}`, "what was not committed is gone"),
			line("i-next", `${workerOf(each.after)} took over after ${duration(each.to - each.from)}`, "finished calls were kept")));
}

export function note({ kind, at: moment, texts }) {
	const quiet = kind === "interrupted";
	const heads = { error: "The run failed", interrupted: "Interrupted", warning: "Writes were lost" };
	return h("article.msg", h("time", { title: inFull(moment) }, at(moment)),
		h(quiet ? "div.notebox" : "div.notebox.failbox", h("h2", icon(quiet ? "s-pause" : "s-fail", quiet ? "g" : "g fail"), heads[kind]), texts.filter(Boolean).map((line) => h("p", shown(line)))));
}
