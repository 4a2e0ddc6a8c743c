// Builds elements. Text always goes in as text: nothing in this page ever parses a string as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "open" || name === "hidden") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export function icon(name, kind = "i") {
  return s("svg", { class: kind, "aria-hidden": "true", focusable: "false" }, s("use", { href: `#${name}` }));
}

export function put(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

export function button(label, onclick, { kind = "", glyph, key, ...more } = {}) {
  return h("button", { type: "button", class: `btn ${kind}`, onclick, ...more }, glyph && icon(glyph), label, key && h("kbd", { "aria-hidden": "true" }, key));
}

// Tells screen readers; the same sentence twice is said twice.
export function say(text) {
  const region = document.getElementById("said");
  region.textContent = "";
  requestAnimationFrame(() => { region.textContent = text; });
}

// Runs `draw` at most once a frame, however often it is asked for.
export function eachFrame(draw) {
  let asked = 0;
  const ask = () => { asked ||= requestAnimationFrame(() => { asked = 0; draw(); }); };
  ask.stop = () => { cancelAnimationFrame(asked); asked = 0; };
  return ask;
}

export function after(milliseconds, act) {
  let timer = 0;
  const ask = () => { clearTimeout(timer); timer = setTimeout(act, milliseconds); };
  ask.stop = () => clearTimeout(timer);
  return ask;
}

export async function copy(text, what = "JSON") {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied`);
    return true;
  } catch {
    say("The browser did not allow copying");
    return false;
  }
}

export function copyButton(get, label = "Copy", what = "JSON") {
  const node = button(label, async () => {
    node.textContent = (await copy(get(), what)) ? "Copied" : "Not allowed";
    setTimeout(() => { node.textContent = label; }, 1200);
  }, { kind: "quiet tiny" });
  return node;
}
