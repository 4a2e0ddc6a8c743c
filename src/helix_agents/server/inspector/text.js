// How values are written for people: numbers, times, sizes, and text that may be hostile.

import { h } from "./dom.js";

// Control characters and marks that change the direction of text: shown, never obeyed.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/u;
const UNSEEN_ALL = new RegExp(UNSEEN, "gu");

export function shown(text) {
	const value = String(text);
	if (!UNSEEN.test(value)) return [value];
	const parts = [];
	let from = 0;
	for (const match of value.matchAll(UNSEEN_ALL)) {
		if (match.index > from) parts.push(value.slice(from, match.index));
		const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
		parts.push(h("span.unseen", `U+${code}`));
		from = match.index + match[0].length;
	}
	if (from < value.length) parts.push(value.slice(from));
	return parts;
}

export function short(text, length = 80) {
	const value = String(text);
	return value.length > length ? `${value.slice(0, length)}…` : value;
}

export function json(value, indent) {
	return JSON.stringify(value, null, indent) ?? "null";
}

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
