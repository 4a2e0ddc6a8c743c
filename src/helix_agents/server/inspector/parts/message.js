// One entry of the conversation: who spoke, what was thought, the text, and the calls in one box.

import { get, path } from "../api.js";
import { h, icon, put } from "../dom.js";
import { Story } from "../model/story.js";
import { sessionLink } from "../router.js";
import { glyph } from "../status.js";
import { at, duration, inFull, plural, shown, short } from "../text.js";
import { ask } from "./ask.js";
import { box, gist, io } from "./value.js";

const CALL_STATE = { asked: "active", running: "active", done: "completed", failed: "failed", waiting: "suspended_client_tool" };
const LONG_TEXT = 20_000;

function speaker(item, agent) {
  if (item.role === "user") return "You";
  if (item.role === "assistant") return agent;
  return item.role;
}

export function text(value) {
  if (value.length > LONG_TEXT) return box(value);
  return h("div", { class: "text", dir: "auto" }, shown(value));
}

export function thinking(value, milliseconds) {
  if (!value) return null;
  const node = h("details", { class: "thought" }, h("summary", null, icon("i-fold", "i fold-mark"), milliseconds > 0 ? `Thought for ${duration(milliseconds)}` : "Thought"));
  node.addEventListener("toggle", () => { if (node.open && node.children.length === 1) node.append(text(value)); });
  return node;
}

export function message(item, { agent, sessionId, usage, answered }) {
  return h("article", { class: `msg ${item.role}`, id: item.key, tabindex: "-1" },
    h("time", { title: inFull(item.at) }, at(item.at)),
    h("div", { class: "said" },
      h("header", { class: "who" }, h("b", null, shown(speaker(item, agent))), item.step !== null && item.role === "assistant" && h("span", { class: "dim" }, `step ${item.step}`), item.interrupted && h("span", { class: "tag" }, "interrupted"), item.finish && item.finish !== "stop" && item.finish !== "tool_calls" && h("span", { class: "tag amber" }, shown(item.finish)), h("span", { class: "grow" }), usage && h("span", { class: "dim" }, usage)),
      thinking(item.thinking, item.thoughtMs),
      item.text && text(item.text),
      item.streaming && h("span", { class: "cursor", "aria-hidden": "true" }),
      calls(item.calls, { sessionId, answered })));
}

export function calls(map, context) {
  if (!map.size) return null;
  const plain = [...map.values()].filter((call) => !call.ask && !call.child);
  const special = [...map.values()].filter((call) => call.ask || call.child);
  return [
    plain.length > 0 && h("div", { class: "calls" }, map.size > 1 && h("p", { class: "calls-head" }, `${plural(map.size, "call")} in parallel`), plain.map(call)),
    special.map((each) => (each.ask ? ask(each.ask, context) : child(each, context))),
  ];
}

export function call(each) {
  const running = each.state === "asked" || each.state === "running";
  const time = each.endedAt && each.startedAt ? duration(each.endedAt - each.startedAt) : "";
  const head = h("summary", null, icon("i-fold", "i fold-mark"), glyph(CALL_STATE[each.state]), h("b", { class: "mono" }, shown(each.name)), h("span", { class: "mono dim clip grow" }, shown(each.input === undefined ? short(each.inputText ?? "", 90) : gist(each.input))), each.error && h("span", { class: "red clip" }, shown(short(each.error, 60))), running && h("span", { class: "dim" }, "running"), h("span", { class: "dim" }, time));
  const node = h("details", { class: "call", "data-call": each.id }, head);
  node.addEventListener("toggle", () => { if (node.open && node.children.length === 1) node.append(h("div", { class: "ios" }, details(each))); });
  return node;
}

function details(each) {
  return [
    io("Arguments", each.input ?? each.inputText ?? ""),
    each.error ? io("Error", each.error) : each.result === undefined ? h("p", { class: "dim" }, "No result yet.") : io(Array.isArray(each.result) ? `Result, ${plural(each.result.length, "item")}` : "Result", each.result),
  ];
}

// A sub-agent: live text from the parent's stream, the stored conversation when somebody unfolds it.
function child(each, context) {
  const { id, agent, status, draft } = each.child;
  const state = each.state === "done" ? "completed" : each.state === "failed" ? "failed" : status ?? "active";
  const body = h("div", { class: "sub-body" });
  const node = h("details", { class: `sub-box ${state === "active" ? "live" : ""}`, open: Boolean(draft) && state !== "completed" },
    h("summary", null, icon("i-fold", "i fold-mark"), glyph(state), h("b", { class: "mono" }, shown(agent ?? each.name)), h("span", { class: "dim grow" }, "sub-agent"), h("a", { class: "linkish", href: sessionLink(id) }, "Open session")),
    h("div", { class: "sub" }, h("p", { class: "mono dim" }, shown(id)), body));
  const show = async () => {
    if (draft && !draft.isEmpty) return put(body, draft.steps.map((step) => openStep(step, agent, { ...context, sessionId: context.sessionId, small: true })));
    if (body.children.length) return undefined;
    try {
      const found = await get(path("sessions", id, "messages") + "?limit=200");
      const story = new Story();
      story.add(found.items);
      return put(body, story.items.map((item) => message(item, { agent, sessionId: id })));
    } catch (error) { return put(body, h("p", { class: "dim" }, shown(error.message))); }
  };
  node.addEventListener("toggle", () => { if (node.open) show(); });
  if (node.open) show();
  return node;
}

// The open step, drawn from chunks.
export function openStep(step, agent, context) {
  const thoughtMs = step.thoughtUntil - step.thoughtAt;
  const item = { key: `open-${step.step}`, role: "assistant", text: step.text, thinking: step.thinking, thoughtMs, calls: step.calls, step: step.step, at: step.firstAt, streaming: !step.done && context.live && !step.calls.size };
  return message(item, { ...context, agent });
}

export function cut(each) {
  return h("article", { class: "cut", "aria-label": "Crash and take-over" }, h("time", { title: inFull(each.from) }, at(each.from)),
    h("ul", null,
      h("li", null, icon("i-bolt"), h("b", null, `${shownName(each.before)} stopped${each.step === undefined ? "" : ` in step ${each.step}`}`), h("span", { class: "dim" }, "what was not committed is gone")),
      h("li", null, icon("i-next"), h("b", null, `${shownName(each.after)} took over after ${duration(each.to - each.from)}`), h("span", { class: "dim" }, "finished calls were kept"))));
}

const shownName = (name) => short(name ?? "a process", 24);

export function note(each) {
  const heads = { error: "The run failed", interrupted: "Interrupted", warning: "Writes were lost" };
  return h("article", { class: `msg note-${each.kind}` }, h("time", { title: inFull(each.at) }, at(each.at)),
    h("div", { class: each.kind === "interrupted" ? "notebox" : "notebox failbox" }, h("h2", null, icon(each.kind === "interrupted" ? "s-pause" : "s-fail", `g ${each.kind === "interrupted" ? "" : "fail"}`), heads[each.kind]), each.texts.filter(Boolean).map((line) => h("p", null, shown(line)))));
}
