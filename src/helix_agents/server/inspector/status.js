// What a status is called and how it is drawn: a glyph and a word, never color alone.

import { h, icon } from "./dom.js";

const TABLE = {
	active: ["Active", "s-active", "active"],
	running: ["Running", "s-active", "active"],
	paused: ["Paused", "s-pause", ""],
	interrupted: ["Interrupted", "s-pause", ""],
	completed: ["Completed", "s-done", "ok"],
	failed: ["Failed", "s-fail", "fail"],
	suspended_client_tool: ["Waiting", "s-wait", "wait"],
	suspended_step_partial: ["Waits in part", "s-wait", "wait"],
	suspended_awaiting_children: ["Child waits", "s-child", "wait"],
};

export const GROUPS = [
	["active", ["active"]],
	["waiting", ["suspended_client_tool", "suspended_step_partial", "suspended_awaiting_children"]],
	["failed", ["failed"]],
	["interrupted", ["interrupted", "paused"]],
	["completed", ["completed"]],
];

const look = (status) => TABLE[status] ?? [status, "s-pause", ""];
export const word = (status) => look(status)[0];
export const tone = (status) => look(status)[2];
export const isLive = (status) => status === "active";
export const isOver = (status) => status === "completed" || status === "failed";
export const waits = (status) => status.startsWith("suspended_");

export function glyph(status) {
	const [, name, kind] = look(status);
	return icon(name, `g ${kind}`);
}

export function mark(status) {
	return h("span", { class: isOver(status) && status !== "failed" ? "st quiet-st" : "st" }, glyph(status), h("span", word(status)));
}

export function pill(status) {
	return h("span", { class: `pill ${tone(status)}` }, glyph(status), word(status));
}
