// Talks to the server by the client that every page can use (`/client.js`): here are the token, paths and queries, and
// what happens when the server no longer accepts the token. Integers stay exact (`json.js`).

import { followStream, Helix, Problem } from "../client.js";
import { parseJson, writeJson } from "./json.js";

const KEY = "helix-token";
let onRefused = () => {};

export { Problem };

export const token = {
	get: () => sessionStorage.getItem(KEY) || "",
	set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

const helix = new Helix({ token: token.get, parse: parseJson, write: writeJson });

export function whenRefused(act) {
	onRefused = act;
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

async function call(method, address, body, signal) {
	try {
		return await helix.call(method, address, body, { signal });
	} catch (error) {
		if (error.status === 401) onRefused();
		throw error;
	}
}

export const get = (address, signal) => call("GET", address, undefined, signal);
export const post = (address, body = {}) => call("POST", address, body);
export const patch = (address, body) => call("PATCH", address, body);
export const remove = (address) => call("DELETE", address);

// `handle(frame)` gets {event, id, data, size}; `tell(link, wait)` gets "live", "lost", "over" or a Problem.
export function follow(address, fromSequence, { handle, tell = () => {} }) {
	return followStream(helix, address, fromSequence, {
		onFrame: handle,
		onLink: (link, wait) => {
			if (link.status === 401) onRefused();
			tell(link, wait);
		},
	});
}
