// Judges streams with the official clients. Reads [{kind, name, events}] from the file named as argument, writes
// [{name, problem, message}]: problem is null if the client accepts the stream; message is what the AI SDK built.
import { verifyEvents } from "@ag-ui/client";
import { from, lastValueFrom, toArray } from "rxjs";
import { readUIMessageStream, uiMessageChunkSchema } from "ai";
import fs from "fs";

async function judgeAgUi(events) {
  const seen = await lastValueFrom(from(events).pipe(verifyEvents(false), toArray()));
  if (seen.length !== events.length) throw new Error(`${seen.length} of ${events.length} events came through`);
  return null;
}

async function judgeUiMessages(parts) {
  const schema = uiMessageChunkSchema();
  for (const part of parts) {
    const checked = await schema.validate(part);
    if (!checked.success) throw new Error(`refused: ${JSON.stringify(part)}`);
  }
  const errors = [];
  const stream = new ReadableStream({
    start(controller) {
      for (const part of parts) controller.enqueue(part);
      controller.close();
    },
  });
  let last = null;
  for await (const message of readUIMessageStream({ stream, onError: (error) => errors.push(String(error)) })) last = message;
  const told = parts.filter((part) => part.type === "error").length;
  if (errors.length > told) throw new Error(errors.join("; "));
  return last;
}

const answers = [];
for (const { kind, name, events } of JSON.parse(fs.readFileSync(process.argv[2]))) {
  try {
    const message = kind === "ag-ui" ? await judgeAgUi(events) : await judgeUiMessages(events);
    answers.push({ name, problem: null, message });
  } catch (error) {
    answers.push({ name, problem: String(error.message ?? error), message: null });
  }
}
console.log(JSON.stringify(answers));
