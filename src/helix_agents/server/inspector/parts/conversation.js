// The conversation: stored entries in pages, the open step behind them, a button when something new is below.

import { button, eachFrame, h, put } from "../dom.js";
import { isLive } from "../status.js";
import { blank } from "./blank.js";
import { cut, message, note, openStep } from "./message.js";
import { Pages } from "./pages.js";

const NEAR = 48;

export function conversation(store, { answered }) {
  const list = h("div");
  const open = h("div", { class: "open" });
  const log = h("div", { class: "log scroll", role: "log", "aria-label": "Conversation", tabindex: "0", "aria-live": "off" }, list, open);
  const jump = button("", () => toEnd(), { kind: "new", hidden: true });
  const node = h("div", { class: "talk" }, log, jump);
  let follows = true;
  let unseen = 0;

  const context = () => ({ agent: store.session.agent_type, sessionId: store.id, answered });
  const pages = new Pages(log, list, (item) => (item.kind === "cut" ? cut(item) : message(item, context())));
  const toEnd = () => { follows = true; unseen = 0; jump.hidden = true; log.scrollTop = log.scrollHeight; };
  log.addEventListener("scroll", () => {
    follows = log.scrollTop + log.clientHeight >= log.scrollHeight - NEAR;
    if (follows) { unseen = 0; jump.hidden = true; }
  }, { passive: true });

  function withCuts(items) {
    const cuts = store.history.cuts.map((each) => ({ ...each, kind: "cut", key: `cut-${each.from}` }));
    if (!cuts.length) return items;
    const result = [];
    let next = 0;
    for (const item of items) {
      while (next < cuts.length && item.at && cuts[next].to <= item.at) { result.push(cuts[next]); next += 1; }
      result.push(item);
    }
    return [...result, ...cuts.slice(next)];
  }

  const keep = (draw) => { const was = follows; draw(); if (was) log.scrollTop = log.scrollHeight; };
  let known = 0;
  let begun = false;
  const drawStory = eachFrame(() => keep(() => {
    const items = withCuts(store.story.items);
    if (known && items.length > known && !follows) { unseen += items.length - known; jump.hidden = false; put(jump, `${unseen} new`); }
    known = items.length;
    attachAsks();
    pages.set(items);
    if (items.length && !begun) {
      begun = true;
      pages.reveal(items.length - 1);
      toEnd();
    }
    list.classList.toggle("stale", store.link === "lost");
    if (!items.length && store.draft.isEmpty) put(open, blank("No message yet", "What people and the agent say appears here."));
  }));

  // Questions that wait belong to stored calls as well: the answer may have been stored before its question was answered.
  function attachAsks() {
    const asks = new Map(store.waiting.map((each) => [each.tool_call_id, each]));
    for (const item of store.story.items.slice(-20)) {
      for (const call of item.calls.values()) {
        const wanted = call.state === "asked" ? asks.get(call.id) : undefined;
        if (Boolean(wanted) !== Boolean(call.ask)) item.changed = true;
        call.ask = wanted;
        if (wanted) call.state = "asked";
      }
    }
  }

  const drawDraft = eachFrame(() => keep(() => {
    const live = isLive(store.session.status) && store.link === "live";
    const stored = new Set(store.story.items.slice(-20).flatMap((item) => [...item.calls.keys()]));
    const steps = store.draft.steps.filter((step) => ![...step.calls.keys()].some((id) => stored.has(id)));
    const focused = open.contains(document.activeElement) && document.activeElement.matches("input, textarea");
    if (focused) return;
    if (!steps.length && !store.draft.notes.length && !store.story.items.length) return;
    const notes = store.session.status === "failed" && !store.draft.notes.length && store.session.error ? [{ kind: "error", at: store.session.updated_at, texts: [store.session.error] }] : store.draft.notes;
    put(open, steps.map((step) => openStep(step, step.agent ?? store.session.agent_type, { ...context(), live })), notes.map(note));
  }));

  store.on("story", drawStory);
  store.on("history", drawStory);
  store.on("draft", drawDraft);
  store.on("session", drawDraft);
  store.on("link", drawDraft);

  return {
    node,
    toEnd,
    follow() { follows = !follows; if (follows) toEnd(); return follows; },
    goTo(step) {
      const place = withCuts(store.story.items).findIndex((item) => item.step === step && item.role === "assistant");
      const found = place >= 0 ? pages.reveal(place) : open.querySelector(`#open-${step}`);
      found?.scrollIntoView({ block: "start" });
      found?.focus({ preventScroll: true });
    },
    stop() { pages.stop(); drawStory.stop(); drawDraft.stop(); },
  };
}
