// A tree of state: one line per value, marks in the gutter, subtrees drawn when unfolded.

import { showText } from "../dialogs.js";
import { button, h, icon, redraw } from "../dom.js";
import { pointerTo, unfold } from "../model/diff.js";
import { json, short, shown, size } from "../text.js";

const SIGNS = { added: "+", removed: "−", changed: "~", same: "" };
const WORDS = { added: "added: ", removed: "removed: ", changed: "changed: ", same: "" };
const PAGE = 100;
const LONG = 80;
const FLASH = 1600;
const isBranch = (value) => value !== null && typeof value === "object";

export function tree(options) {
	const opened = new Set();
	const node = h("ul.tree.scroll", { role: "tree", label: "State", tabindex: "-1" });

	function lineOf(each, pointer, depth) {
		const branch = isBranch(each.value);
		const many = branch ? Object.keys(each.value).length : 0;
		const canOpen = branch && (many > 0 || each.children?.length);
		const isOpen = canOpen && isUnfolded(each, pointer, depth);
		const row = h("li", { role: "treeitem", class: `line ${each.mark} d${Math.min(depth, 8)} `, "aria-level": String(depth + 1), "aria-expanded": canOpen ? String(isOpen) : undefined, tabindex: "-1", "data-key": pointer },
			h("span.sign", { "aria-hidden": "true" }, SIGNS[each.mark]), h("span.sr", WORDS[each.mark]),
			canOpen ? icon("i-fold", "i fold-mark") : h("span.no-fold"),
			h("span.key", shown(short(each.key, 60))), " ",
			branch ? summary(each, isOpen) : leaf(each));
		const age = performance.now() - (options.flashes.get(pointer) ?? -FLASH);
		if (age < FLASH) { row.classList.add("flash"); row.style.animationDelay = `-${age}ms`; }
		if (canOpen) row.addEventListener("click", () => { toggle(each, pointer, depth); });
		return row;
	}

	function isUnfolded(each, pointer, depth) {
		if (opened.has(pointer)) return true;
		if (opened.has(`-${pointer}`)) return false;
		return Boolean(each.touched) || (depth < 1 && Object.keys(each.value).length <= 20);
	}

	function toggle(each, pointer, depth) {
		const isOpen = isUnfolded(each, pointer, depth);
		opened.delete(isOpen ? pointer : `-${pointer}`);
		opened.add(isOpen ? `-${pointer}` : pointer);
		draw();
		node.querySelector(`[data-key="${CSS.escape(pointer)}"]`)?.focus();
	}

	const shownPages = new Map();
	function linesOf(each, pointer, depth) {
		const all = unfold(each);
		const changed = all.filter((child) => child.mark !== "same" || child.touched);
		// A long list starts with its changed items, wherever they are.
		const isLong = all.length > PAGE && changed.length > 0 && !shownPages.has(pointer);
		const wanted = options.onlyChanges || isLong ? changed : all;
		const limit = shownPages.get(pointer) ?? PAGE;
		const lines = [];
		for (const child of wanted.slice(0, limit)) {
			const place = `${pointer}${pointerTo(child.key)}`;
			lines.push(lineOf(child, place, depth));
			if (isBranch(child.value) && isUnfolded(child, place, depth)) lines.push(...linesOf(child, place, depth + 1));
		}
		const more = (label, next) => lines.push(h(`li.line.d${Math.min(depth, 8)}`, { role: "none" }, h("span.sign"), h("span.no-fold"), button(label, () => { shownPages.set(pointer, next); draw(); }, { kind: "quiet tiny linkish" })));
		if (wanted.length > limit) more(`${wanted.length - limit} more`, limit + PAGE * 5);
		if (isLong && !options.onlyChanges) more(`${all.length - changed.length} unchanged`, PAGE);
		return lines;
	}

	let root = { key: "", mark: "same", value: {} };
	function draw() {
		const top = node.scrollTop;
		redraw(node, linesOf(root, "", 0));
		if (node.firstElementChild) node.firstElementChild.tabIndex = 0;
		node.scrollTop = top;
	}

	node.addEventListener("keydown", (event) => {
		const here = event.target.closest("[role=treeitem]");
		if (!here) return;
		const lines = [...node.querySelectorAll("[role=treeitem]")];
		const place = lines.indexOf(here);
		const expanded = here.getAttribute("aria-expanded");
		if (event.key === "ArrowDown") lines[place + 1]?.focus();
		else if (event.key === "ArrowUp") lines[place - 1]?.focus();
		else if ((event.key === "ArrowRight" && expanded === "false") || (event.key === "ArrowLeft" && expanded === "true") || (event.key === "Enter" && expanded)) here.click();
		else return;
		event.preventDefault();
	});

	return { node, set(next) { root = next; draw(); }, draw };
}

function summary(each, isOpen) {
	const many = Object.keys(each.value).length;
	const count = Array.isArray(each.value) ? `[${many || ""}]` : `{${many || ""}}`;
	if (isOpen || !many) return h("span.dim", count);
	return h("span.clip", h("span.dim", `${count} `), shown(short(json(each.value), LONG)));
}

function leaf(each) {
	const text = json(each.value);
	const long = text.length > LONG;
	return h("span.clip", h("span.leaf", { dir: "ltr" }, shown(short(text, LONG))), each.mark === "changed" && h("s", shown(short(json(each.before), 40))), long && button(size(text.length), (event) => { event.stopPropagation(); showText(each.key, typeof each.value === "string" ? each.value : text, 64 * 1024); }, { kind: "quiet tiny linkish" }));
}
