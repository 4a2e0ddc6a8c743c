// State: the tree as it is now or as it was at a checkpoint, and the difference to another; fork or restore from there.

import { get, path } from "../api.js";
import { button, copyButton, eachFrame, h, put, s } from "../dom.js";
import { counts, diffTree } from "../model/diff.js";
import { blank } from "../parts/blank.js";
import { at, json, shown } from "../text.js";
import { tree } from "./tree.js";

const KEPT = 40;

export function statePanel(store, { chosen, choose, fork, restore }) {
  const options = { onlyChanges: false, flashes: store.flashes };
  const lines = tree(options);
  const head = h("div", { class: "bar-top" });
  const dock = h("section", { class: "dock", "aria-label": "Checkpoints" });
  const node = h("div", { class: "pane" }, head, lines.node, dock);
  const cache = new Map();
  const slider = h("input", { type: "range", min: "0", step: "1", "aria-label": "Checkpoint" });
  const compare = h("select", { class: "field small", "aria-label": "Compared with" });
  let selected = chosen;
  let other = "";
  let live = null;

  const ordered = () => [...store.checkpoints].sort((a, b) => a.created_at - b.created_at || a.version - b.version);
  const stateAt = async (id) => {
    if (!cache.has(id)) {
      const found = await get(path("sessions", store.id, "checkpoints", id));
      cache.set(id, found.state.custom_state ?? {});
      if (cache.size > KEPT) cache.delete(cache.keys().next().value);
    }
    return cache.get(id);
  };

  async function draw() {
    const list = ordered();
    const place = selected ? list.findIndex((each) => each.checkpoint_id === selected) : list.length;
    const isNow = !selected || place < 0;
    const before = other ? list.find((each) => each.checkpoint_id === other) : list[(isNow ? list.length : place) - 1];
    const wanted = selected;
    let now;
    let then = {};
    try {
      now = isNow ? store.state : await stateAt(list[place].checkpoint_id);
      then = isNow && !other ? live?.before ?? now : before ? await stateAt(before.checkpoint_id) : {};
    } catch (error) { put(head, h("span", { class: "red" }, shown(error.message))); return; }
    if (wanted !== selected) return;
    const root = diffTree(then, now);
    const total = counts(root);
    put(head,
      h("b", null, isNow ? "Now" : `After step ${list[place].step_count}`),
      total.added > 0 && h("span", { class: "green" }, `+${total.added} added`), total.changed > 0 && h("span", { class: "blue" }, `~${total.changed} changed`), total.removed > 0 && h("span", { class: "red" }, `−${total.removed} removed`),
      h("span", { class: "grow" }),
      button("Only changes", () => { options.onlyChanges = !options.onlyChanges; draw(); }, { kind: "quiet tiny", "aria-pressed": String(options.onlyChanges) }),
      copyButton(() => json(now, 2)));
    lines.set(Object.keys(now).length || Object.keys(then).length ? root : { key: "", mark: "same", value: {} });
    if (!lines.node.children.length) put(lines.node, blank(options.onlyChanges ? "No change here" : "The state is empty", options.onlyChanges ? "Compare with another checkpoint, or show everything." : "Tools write to it with ctx.update_state."));
    drawDock(list, isNow ? list.length : place);
  }

  function drawDock(list, place) {
    if (!list.length) return put(dock, h("p", { class: "dim" }, "No checkpoint yet. The first commit makes one."));
    const here = list[place];
    const last = list.length;
    const steps = new Map();
    for (const each of list) steps.set(each.checkpoint_id, steps.size && [...steps.values()].includes(`s${each.step_count}`) ? `s${each.step_count}+` : `s${each.step_count}`);
    const name = (each) => steps.get(each.checkpoint_id);
    slider.max = String(last);
    if (Number(slider.value) !== place) slider.value = String(place);
    slider.setAttribute("aria-valuetext", here ? `checkpoint of step ${here.step_count}` : "now");
    const marks = last <= 24 ? Array.from({ length: last + 1 }, (_, each) => s("circle", { cx: `${(100 * each) / last}%`, cy: "12", r: "3.5" })) : [];
    const few = last <= 12 ? list.map((_, each) => each) : [0, Math.floor(last / 2), last - 1];
    put(compare, h("option", { value: "" }, place ? `previous${list[place - 1] ? `, ${name(list[place - 1])}` : ""}` : "nothing"), list.filter((each) => each !== here).map((each) => h("option", { value: each.checkpoint_id }, `${name(each)}, ${at(each.created_at)}`)));
    compare.value = other;
    return put(dock,
      h("div", { class: "dock-1" }, h("b", null, here ? `Checkpoint ${name(here)}` : "Now"), h("span", { class: "grow" }), h("label", { class: "dim" }, "Compared with ", compare)),
      h("div", { class: "scrub" }, s("svg", { "aria-hidden": "true" }, s("line", { x1: "0", x2: "100%", y1: "12", y2: "12" }), marks), slider, h("ol", { "aria-hidden": "true" }, few.map((each) => h("li", { "aria-current": each === place ? "true" : undefined }, name(list[each]))), h("li", { "aria-current": place === last ? "true" : undefined }, "now"))),
      h("div", { class: "dock-2" }, h("span", { class: "grow" }, here ? `${at(here.created_at)}, version ${here.version}, chunk ${here.stream_sequence}` : `version ${store.session.version}`), button(here ? `Fork at ${name(here)}` : "Fork", () => fork(here?.checkpoint_id), { glyph: "i-fork" }), here && button(`Restore ${name(here)}…`, () => restore(here))));
  }

  slider.addEventListener("input", () => { const list = ordered(); selected = list[Number(slider.value)]?.checkpoint_id ?? ""; choose(selected); draw(); });
  compare.addEventListener("change", () => { other = compare.value; draw(); });
  const redraw = eachFrame(draw);
  let before = store.state;
  // While a step is open the tree compares with the state that the step began with, so that every patch stays visible.
  const patched = () => { live = { before: store.flashes.size ? before : store.state }; if (!store.flashes.size) before = store.state; if (!selected) redraw(); };
  store.on("state", patched);
  store.on("checkpoints", redraw);
  patched();
  redraw();

  return {
    node,
    step(by) { const list = ordered(); const place = selected ? list.findIndex((each) => each.checkpoint_id === selected) : list.length; selected = list[Math.min(list.length, Math.max(0, place + by))]?.checkpoint_id ?? ""; choose(selected); draw(); },
    json: () => json(store.state, 2),
    stop: () => redraw.stop(),
  };
}
