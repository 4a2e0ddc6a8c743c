// Lets the official AG-UI client talk to a server. Reads {url, headers, threadId, steps} from the file named as
// argument and writes what each step ended with: {result, messages} or {problem}. A step: {keep?, say?, edit?}.
// keep: how many messages stay. say: a new user message. edit: [position, content]; what follows is removed.
import { HttpAgent } from "@ag-ui/client";
import fs from "fs";

const { url, headers, threadId, steps } = JSON.parse(fs.readFileSync(process.argv[2]));
const agent = new HttpAgent({ url, headers, threadId });
const done = [];
for (const { keep, say, edit } of steps) {
  if (keep !== undefined) agent.setMessages(agent.messages.slice(0, keep));
  if (edit) agent.setMessages([...agent.messages.slice(0, edit[0]), { ...agent.messages[edit[0]], content: edit[1] }]);
  if (say) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: say });
  try {
    const { result } = await agent.runAgent();
    done.push({ result, messages: agent.messages.map(({ role, content }) => [role, content]) });
  } catch (error) {
    done.push({ problem: String(error) });
  }
}
console.log(JSON.stringify(done));
