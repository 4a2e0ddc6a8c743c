// Talks to the server. One place for the token, for problems (application/problem+json) and for paths.

import { parseJson, writeJson } from "./json.js";

const KEY = "helix-token";
let onRefused = () => {};

export class Problem extends Error {
	constructor(status, body) {
		super(body.detail || body.title || `The server answered ${status}.`);
		this.status = status;
		this.code = body.code || "unknown";
		this.body = body;
	}
}

export class Unreachable extends Error {
	constructor(cause) {
		super("The server does not answer.", { cause });
		this.code = "unreachable";
	}
}

export const token = {
	get: () => sessionStorage.getItem(KEY) || "",
	set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export function whenRefused(act) {
	onRefused = act;
}

export function headers(more = {}) {
	const value = token.get();
	return value ? { ...more, authorization: `Bearer ${value}` } : more;
}

export function path(...parts) {
	return parts.map((part, place) => (place === 0 ? part : encodeURIComponent(part))).join("/");
}

export function query(values) {
	const search = new URLSearchParams();
	for (const [name, value] of Object.entries(values)) {
		for (const each of Array.isArray(value) ? value : [value]) {
			if (each !== undefined && each !== null && each !== "") search.append(name, each);
		}
	}
	const text = search.toString();
	return text ? `?${text}` : "";
}

export async function refusal(response) {
	let body = {};
	try { body = await response.json(); } catch { /* not a problem document: the status says it all */ }
	if (response.status === 401) onRefused();
	return new Problem(response.status, body);
}

async function call(method, address, body, signal) {
	let response;
	try {
		response = await fetch(address, {
			method,
			signal,
			headers: headers(body === undefined ? {} : { "content-type": "application/json" }),
			body: body === undefined ? undefined : writeJson(body),
		});
	} catch (error) {
		if (error.name === "AbortError") throw error;
		throw new Unreachable(error);
	}
	if (!response.ok) throw await refusal(response);
	return response.status === 204 ? null : parseJson(await response.text());
}

export const get = (address, signal) => call("GET", address, undefined, signal);
export const post = (address, body = {}) => call("POST", address, body);
export const remove = (address) => call("DELETE", address);
