// RFC 6902 on plain values, copying only what changes, and the paths that it touched.

export function keysOf(pointer) {
	return pointer === "" ? [] : pointer.slice(1).split("/").map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
}

export const pointerOf = (keys) => keys.map((key) => `/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");

function lookup(document, keys) {
	return keys.reduce((value, key) => (value === undefined || value === null ? undefined : value[key]), document);
}

function changed(document, keys, act) {
	if (keys.length === 1) {
		const copy = Array.isArray(document) ? [...document] : { ...document };
		act(copy, keys[0]);
		return copy;
	}
	const [key, ...rest] = keys;
	const copy = Array.isArray(document) ? [...document] : { ...document };
	copy[key] = changed(copy[key] ?? {}, rest, act);
	return copy;
}

function add(parent, key, value) {
	if (Array.isArray(parent)) parent.splice(key === "-" ? parent.length : Number(key), 0, value);
	else parent[key] = value;
}

function drop(parent, key) {
	if (Array.isArray(parent)) parent.splice(Number(key), 1);
	else delete parent[key];
}

// Returns [document, touched pointers]. A `-` in a path comes back as the index that it meant.
export function applyPatch(document, patches) {
	const touched = [];
	let state = document;
	for (const { op, path, from, value } of patches) {
		let keys = keysOf(path);
		if (op === "move" || op === "copy") {
			const source = keysOf(from);
			const moved = lookup(state, source);
			if (op === "move") state = changed(state, source, drop);
			state = keys.length ? changed(state, keys, (parent, key) => add(parent, key, moved)) : moved;
		} else if (!keys.length) {
			state = op === "remove" ? null : value;
		} else if (op === "add") {
			const parent = lookup(state, keys.slice(0, -1));
			if (keys.at(-1) === "-" && Array.isArray(parent)) keys = [...keys.slice(0, -1), String(parent.length)];
			state = changed(state, keys, (target, key) => add(target, key, value));
		} else if (op === "replace") {
			state = changed(state, keys, (target, key) => { target[key] = value; });
		} else if (op === "remove") {
			state = changed(state, keys, drop);
		}
		if (op !== "test") touched.push(pointerOf(keys));
	}
	return [state, touched];
}
