"""One step of a run: the model's reply, its tool calls and the commit."""
