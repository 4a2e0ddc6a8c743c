// How values are written for people: numbers, times, sizes, and text that may be hostile.

import { h } from "./dom.js";
import { writeJson } from "./json.js";

// Characters that are invisible or change how others are drawn: shown as their code, never applied.
const UNSEEN = /(?![\t\n])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u2800\u3164\uffa0]/u;
const UNSEEN_ALL = new RegExp(`\\r\\n|${UNSEEN.source}`, "gu");
// Blank lines and spaces that could move what follows out of sight.
const GAPS = /\n(?:[^\S\n]*\n){3,}|[^\S\n]{40,}/;
const UNSEEN_OR_GAPS = new RegExp(`${GAPS.source}|${UNSEEN_ALL.source}`, "gu");
const MOST_MARKS = 2000;

const codeOf = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

function nameOf(found) {
	if (found.length === 1 || (found.length === 2 && found.codePointAt(0) > 0xffff)) return codeOf(found);
	const lines = found.split("\n").length - 2;
	return lines > 0 ? `${lines} blank lines` : `${found.length} spaces`;
}

function marked(text, pattern, isBlock) {
	const parts = [];
	let from = 0;
	for (const match of text.matchAll(pattern)) {
		if (match[0] === "\r\n") continue;
		if (match.index > from) parts.push(text.slice(from, match.index));
		const name = nameOf(match[0]);
		parts.push(parts.length < MOST_MARKS ? h("span.unseen", name) : `[${name}]`);
		if (isBlock && match[0][0] === "\n") { parts.splice(-1, 0, "\n"); parts.push("\n"); }
		from = match.index + match[0].length;
	}
	if (from < text.length) parts.push(text.slice(from));
	return parts;
}

export function shown(text) {
	const value = String(text);
	return UNSEEN.test(value) ? marked(value, UNSEEN_ALL, false) : [value];
}

// The whole text with everything visible, for what a person is about to approve.
export const shownInFull = (text) => marked(String(text), UNSEEN_OR_GAPS, true);
export const hidesSomething = (text) => UNSEEN.test(text) || GAPS.test(text);

// The same characters as JSON escapes, for text that will be parsed again.
export const escaped = (text) => text.replace(UNSEEN_ALL, (found) => [...Array(found.length).keys()].map((at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));

export function short(text, length = 80) {
	const value = String(text);
	return value.length > length ? `${value.slice(0, length)}…` : value;
}

export const json = writeJson;

const whole = new Intl.NumberFormat();
export const number = (value) => whole.format(value);

export function brief(value) {
	if (value < 1000) return String(Math.round(value));
	if (value < 100_000) return `${(value / 1000).toFixed(1)}k`;
	if (value < 1_000_000) return `${Math.round(value / 1000)}k`;
	return `${(value / 1_000_000).toFixed(1)}M`;
}

export function size(characters) {
	if (characters < 1024) return `${characters} chars`;
	if (characters < 1024 * 1024) return `${(characters / 1024).toFixed(1)} KB`;
	return `${(characters / 1024 / 1024).toFixed(1)} MB`;
}

export function money(value) {
	if (!value) return "";
	return `$${value < 0.1 ? value.toFixed(3) : value.toFixed(2)}`;
}

export function duration(milliseconds) {
	if (milliseconds === undefined || milliseconds === null || Number.isNaN(milliseconds)) return "";
	if (milliseconds < 1000) return `${Math.max(0, Math.round(milliseconds))} ms`;
	const seconds = milliseconds / 1000;
	if (seconds < 100) return `${seconds.toFixed(1)} s`;
	if (seconds < 6000) return `${Math.floor(seconds / 60)} m ${Math.round(seconds % 60)} s`;
	if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} m`;
	return `${Math.round(seconds / 86400)} days`;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

export const at = (moment) => (moment ? clock.format(moment) : "");
export const inFull = (moment) => (moment ? full.format(moment) : "");

export function when(moment) {
	if (!moment) return "";
	const today = new Date().toDateString() === new Date(moment).toDateString();
	return today ? `${clock.format(moment)} today` : day.format(moment);
}

export function ago(moment, now = Date.now()) {
	const seconds = Math.max(0, Math.round((now - moment) / 1000));
	if (seconds < 3) return "now";
	if (seconds < 60) return `${seconds} s`;
	if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
	if (seconds < 86400) return `${Math.round(seconds / 3600)} h`;
	if (seconds < 2 * 86400) return "yesterday";
	return `${Math.round(seconds / 86400)} days`;
}

export function plural(count, noun, many = `${noun}s`) {
	return `${number(count)} ${count === 1 ? noun : many}`;
}
