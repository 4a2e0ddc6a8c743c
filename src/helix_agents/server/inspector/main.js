// The page: top bar, one view at a time chosen by the address, keys that work everywhere.

import { Problem, get, token, whenRefused } from "./api.js";
import { prompt, showKeys } from "./dialogs.js";
import { button, h, icon, put } from "./dom.js";
import { useKeys } from "./keys.js";
import { go, here, link, sessionLink } from "./router.js";
import { applyTheme, toggleTheme } from "./theme.js";
import { health } from "./views/health.js";
import { session } from "./views/session.js";
import { sessions } from "./views/sessions.js";
import { waiting } from "./views/waiting.js";

const STATS_EVERY = 5000;
const view = document.getElementById("view");
let current = null;
let shownKey = "";

applyTheme();

const count = h("span.count", { hidden: true });
const backend = h("span.health.hide-s");
const nav = {
	sessions: h("a", { href: link([]) }, "Sessions"),
	waiting: h("a", { href: link(["waiting"]) }, "Waiting ", count),
	health: h("a", { href: link(["health"]), class: "hide-s" }, "Health"),
};

function drawTop() {
	const theme = button("", toggleTheme, { kind: "quiet icon", label: "Switch between light and dark", title: "Light or dark (t)" });
	theme.append(icon("i-theme"));
	put(
		document.getElementById("top"),
		h("a.brand", { href: link([]), label: "Helix inspector, all sessions" }, icon("i-helix", "i logo"), h("span", "helix")),
		h("nav", { label: "Main" }, nav.sessions, nav.waiting, nav.health),
		h("span.grow"),
		backend,
		theme,
		button("?", showKeys, { kind: "quiet icon", label: "Keyboard shortcuts", title: "Shortcuts (?)" }),
	);
}

const stats = { value: null, isRefused: false, isAway: false, listeners: new Set() };

async function readStats() {
	try {
		stats.value = await get("stats");
		stats.isAway = false;
		const { waiting: many, backend: store, workers } = stats.value;
		count.hidden = !many;
		count.textContent = many ?? "";
		put(backend, h("span.dot"), store.name, workers?.length ? `, ${workers.length} ${workers.length === 1 ? "worker" : "workers"}` : "");
	} catch (error) {
		stats.value = null;
		if (error instanceof Problem && !error.isPassing) { stats.isRefused = true; return tell(); }
		stats.isAway = true;
		put(backend, h("span.dot.off"), "no answer");
	}
	return tell();
}

const tell = () => stats.listeners.forEach((act) => act());

// A view handles a changed query itself; another view starts from scratch.
function route() {
	const { parts, search } = here();
	const name = parts[0] === "s" ? "session" : parts[0] ?? "sessions";
	const key = name === "session" ? `session ${parts[1]}` : name;
	for (const [each, node] of Object.entries(nav)) {
		const isHere = each === name || (each === "sessions" && name === "session");
		if (isHere) node.setAttribute("aria-current", "page"); else node.removeAttribute("aria-current");
	}
	if (key === shownKey && current?.moved) return current.moved(parts, search);
	current?.stop?.();
	shownKey = key;
	document.body.className = name === "session" ? name : "";
	view.replaceChildren();
	window.scrollTo(0, 0);
	const make = { sessions, waiting, health, session }[name] ?? sessions;
	current = make(view, { parts, search, stats });
	return undefined;
}

async function nextThatWaits() {
	const { items } = await get("waiting?limit=50");
	const { parts } = here();
	const ids = [...new Set(items.map((each) => each.root_session_id ?? each.session_id))];
	if (ids.length) go(sessionLink(ids[(ids.indexOf(parts[1]) + 1) % ids.length]));
}

let asking = false;
whenRefused(async () => {
	if (asking) return;
	asking = true;
	const value = await prompt("Sign in", { label: "Token", yes: "Sign in", type: "password", hint: token.get() ? "The server no longer accepts the token." : "The server asks for a token." });
	asking = false;
	if (value) { token.set(value); location.reload(); }
});

useKeys({ "?": showKeys, t: toggleTheme, w: nextThatWaits, u: () => go(link([])) });
drawTop();
window.addEventListener("hashchange", route);
route();
readStats();
setInterval(() => { if (!document.hidden && !stats.isRefused) readStats(); }, STATS_EVERY);
