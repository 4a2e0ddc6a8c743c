// What a person can do to a session. Each action reports a failure through `tell`, next to its button.

import { patch, path, post, remove } from "../api.js";
import { confirm, prompt } from "../dialogs.js";
import { say } from "../dom.js";
import { go, link, sessionLink } from "../router.js";
import { plural } from "../text.js";

export class Actions {
	#store;
	#tell;

	constructor(store, tell) {
		this.#store = store;
		this.#tell = tell;
	}

	async #act(work, done) {
		try {
			const result = await work();
			if (done) say(done);
			return result ?? true;
		} catch (error) {
			this.#tell(error.message);
			return null;
		}
	}

	#post(verb, body, done) {
		return this.#act(() => post(path("sessions", this.#store.id, verb), body), done);
	}

	interrupt = () => this.#post("interrupt", { reason: "by hand" }, "Interrupt requested");

	resume = () => this.#post("resume", {}, "Resumed");

	rename = async () => {
		const { id, session } = this.#store;
		const title = await prompt("Rename", { label: "Title", value: session.metadata?.title ?? "", yes: "Rename" });
		if (title !== null && (await this.#act(() => patch(path("sessions", id), { title: title.trim() || null }), "Renamed"))) this.#store.refresh();
	};

	edit = async (item) => {
		const content = await prompt("Edit message", { label: "Message", value: item.text, yes: "Send", hint: "The conversation continues from here. What followed stays as a branch." });
		if (content?.trim() && (await this.#post("edit", { message_id: item.id, content: content.trim() }, "Message sent"))) this.#store.refresh();
	};

	again = async (item) => {
		if (await this.#post("regenerate", { message_id: item.id }, "Regenerating")) this.#store.refresh();
	};

	switchTo = async (branch) => {
		if (await this.#act(() => post(path("sessions", this.#store.id, "branches", branch.branch_id, "switch")), "Switched")) this.#store.reload();
	};

	fork = async (checkpointId) => {
		const made = await this.#post("fork", checkpointId ? { checkpoint_id: checkpointId } : {});
		if (made) go(sessionLink(made.session_id));
	};

	restore = async (checkpoint) => {
		const sure = await confirm(`Restore checkpoint s${checkpoint.step_count}?`, "State and messages go back to this commit. Later checkpoints and staged writes are dropped; a fork keeps them.", { yes: "Restore", no: "Leave it", danger: true });
		const isBack = sure && (await this.#post("restore", { checkpoint_id: checkpoint.checkpoint_id }, "Restored"));
		if (isBack) this.#store.reload();
		return Boolean(isBack);
	};

	abort = async () => {
		const sure = await confirm("Abort this run?", "It stops at once and ends as failed. An interrupt lets it stop at a safe point.", { yes: "Abort", no: "Let it run", danger: true });
		if (sure) await this.#post("abort", { reason: "by hand" }, "Abort requested");
	};

	erase = async () => {
		const { id, children } = this.#store;
		const many = children.length;
		const sure = await confirm(`Delete ${id}${many ? ` and its ${plural(many, "sub-session")}` : ""}?`, "Messages, state, checkpoints and chunks go with it. This cannot be undone.", { yes: many ? `Delete ${many + 1} sessions` : "Delete", danger: true });
		if (sure && (await this.#act(() => remove(path("sessions", id))))) go(link([]));
	};
}
