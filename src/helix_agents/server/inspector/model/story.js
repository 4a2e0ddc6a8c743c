// The stored conversation as what is drawn: speakers, and the calls of a step in one box with their results. Pure.

const textOf = (content) => (typeof content === "string" ? content : JSON.stringify(content, null, 2));

function resultOf(message) {
  if (message.success === false) return { state: "failed", error: textOf(message.content).replace(/^Error: /, "") };
  let result = message.content;
  try { result = JSON.parse(message.content); } catch { /* plain text is a result too */ }
  return { state: "done", result };
}

// Adds messages from `offset` on to `items`; calls stay open until their tool message comes, also in a later batch.
export class Story {
  constructor() {
    this.items = [];
    this.count = 0;
    this.open = new Map();
  }

  add(messages, { checkpoints = [], children = new Map() } = {}) {
    for (const message of messages) {
      const place = this.count;
      this.count += 1;
      if (message.role === "tool") this.#settle(message);
      else this.items.push(this.#item(message, place, children));
    }
    this.place(checkpoints);
  }

  #item(message, place, children) {
    const item = { key: `m${place}`, place, role: message.role, text: textOf(message.content ?? ""), thinking: message.thinking ?? "", interrupted: Boolean(message.interrupted), finish: message.finish_reason, calls: new Map(), step: null, at: null };
    for (const call of message.tool_calls ?? []) {
      const entry = { id: call.id, name: call.name, input: call.arguments, state: "asked", child: children.get(call.id) };
      item.calls.set(call.id, entry);
      this.open.set(call.id, entry);
    }
    return item;
  }

  #settle(message) {
    const call = this.open.get(message.tool_call_id);
    if (!call) return;
    Object.assign(call, resultOf(message), { ask: undefined });
    this.open.delete(message.tool_call_id);
  }

  // Messages carry no time of their own: the commit that stored them has one.
  place(checkpoints) {
    const ordered = [...checkpoints].sort((a, b) => a.message_count - b.message_count || a.created_at - b.created_at);
    let next = 0;
    let last = 0;
    for (const item of this.items) {
      while (next < ordered.length && ordered[next].message_count <= item.place) next += 1;
      const found = ordered[next];
      if (!found) break;
      // A step that was put aside has a checkpoint too, with the count of the step before it.
      const step = item.role === "assistant" ? Math.max(found.step_count, last + 1) : found.step_count;
      if (item.role === "assistant") last = step;
      item.changed ||= item.step !== step || item.at !== found.created_at;
      item.step = step;
      item.at = found.created_at;
    }
  }

  adopt(children) {
    for (const item of this.items) {
      for (const call of item.calls.values()) {
        if (call.child || !children.has(call.id)) continue;
        call.child = children.get(call.id);
        item.changed = true;
      }
    }
  }
}
