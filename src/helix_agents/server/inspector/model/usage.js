// What a session spent, by step. Pure.

export function usageByStep(entries, sessionId) {
	const steps = new Map();
	for (const entry of entries) {
		if (entry.session_id !== sessionId || entry.step_count === null || entry.step_count === undefined) continue;
		const step = steps.get(entry.step_count) ?? { prompt: 0, completion: 0, cached: 0, tokens: 0, cost: 0 };
		steps.set(entry.step_count, step);
		if (entry.kind === "tokens") {
			step.prompt += entry.prompt;
			step.completion += entry.completion;
			step.cached += entry.cached;
			step.tokens += entry.total ?? entry.prompt + entry.completion;
		}
		if (entry.kind === "custom" && entry.name === "cost") step.cost += entry.value;
	}
	return steps;
}
