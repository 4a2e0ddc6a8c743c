// Judges streams with the official clients. Reads [{kind, name, events, message?}] from the file named as argument,
// writes [{name, problem, message}]: problem is null if the client accepts the stream; message is what the AI SDK built,
// from the message given if the client had one already. Kinds: "ag-ui", "ai-sdk" (version 7), "ai-sdk-6".
import { verifyEvents } from "@ag-ui/client";
import { from, lastValueFrom, toArray } from "rxjs";
import * as sdk7 from "ai";
import * as sdk6 from "ai6";
import fs from "fs";

async function judgeAgUi(events) {
  const seen = await lastValueFrom(from(events).pipe(verifyEvents(false), toArray()));
  if (seen.length !== events.length) throw new Error(`${seen.length} of ${events.length} events came through`);
  return null;
}

async function judgeUiMessages({ readUIMessageStream, uiMessageChunkSchema }, parts, message) {
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
  const options = { stream, message: message ?? undefined, onError: (error) => errors.push(String(error)) };
  for await (const read of readUIMessageStream(options)) last = read;
  const told = parts.filter((part) => part.type === "error").length;
  if (errors.length > told) throw new Error(errors.join("; "));
  return last;
}

const answers = [];
for (const { kind, name, events, message: given } of JSON.parse(fs.readFileSync(process.argv[2]))) {
  try {
    const sdk = kind === "ai-sdk-6" ? sdk6 : sdk7;
    const message = kind === "ag-ui" ? await judgeAgUi(events) : await judgeUiMessages(sdk, events, given);
    answers.push({ name, problem: null, message });
  } catch (error) {
    answers.push({ name, problem: String(error.message ?? error), message: null });
  }
}
console.log(JSON.stringify(answers));
