// Health: the vitals, every worker, and what each status counts.

import { h, put } from "../dom.js";
import { blank } from "../parts/blank.js";
import { vitals } from "../parts/vitals.js";
import { mark } from "../status.js";
import { ago, number, shown } from "../text.js";

export function health(view, { stats }) {
  const summary = vitals(stats);
  const rest = h("div");
  document.title = "Health · helix";
  put(view, h("div", { class: "page" }, h("div", { class: "title" }, h("h1", null, "Health")), summary.node, rest));
  const draw = () => {
    const now = stats.value;
    if (!now) return put(rest, blank("The server does not answer", "This page asks again every few seconds.", { glyph: "i-bolt" }));
    return put(rest, workers(now.workers), statuses(now.by_status));
  };
  stats.listeners.add(draw);
  draw();
  return { stop() { summary.stop(); stats.listeners.delete(draw); } };
}

function workers(list) {
  const rows = list.map((each) => h("tr", null, h("td", { class: "mono" }, shown(each.name)), h("td", { class: "r" }, Array.isArray(each.running) ? each.running.length : each.running), h("td", { class: "r" }, each.at_once), h("td", { class: "r" }, ago(each.seen_at))));
  return h("section", { class: "facts-table" }, h("h2", null, "Workers"),
    list.length ? h("table", null, h("thead", null, h("tr", null, ["Name", "Running", "Places", "Last seen"].map((name, at) => h("th", { scope: "col", class: at ? "r" : "" }, name)))), h("tbody", null, rows))
      : h("p", { class: "dim" }, "No worker is registered. Start one with `helix worker module:executor`; until then the server runs what it is sent."));
}

function statuses(by) {
  return h("section", { class: "facts-table" }, h("h2", null, "Sessions by status"),
    h("table", null, h("tbody", null, Object.entries(by).map(([status, count]) => h("tr", null, h("td", null, mark(status)), h("td", { class: "r" }, number(count)))))));
}
