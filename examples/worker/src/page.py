"""The page at `/`: send a message, and watch the reply arrive. Edit or replace it."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Assistant</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 44rem; margin: 0 auto; padding: 1rem; }
form { display: flex; gap: .5rem; margin: .5rem 0; }
input { flex: 1; min-width: 0; }
p { white-space: pre-wrap; overflow-wrap: anywhere; }
.user { padding: .5rem .75rem; border-radius: .5rem; background: #8882; }
.tool { opacity: .75; margin-left: 1.5rem; }
</style>
</head>
<body>
<form id="login"><input id="token" type="password" placeholder="TOKEN" aria-label="Token" autocomplete="off"></form>
<main id="log" role="log"></main>
<form id="send"><input id="message" placeholder="Message" aria-label="Message"><button>Send</button></form>
<script type="module">
const by = (id) => document.getElementById(id);
const base = location.pathname.replace(/[/]$/, "");
const session = location.hash.slice(1) || crypto.randomUUID();
location.hash = session; // a reload, a bookmark and a second tab show the same conversation
by("token").value = sessionStorage.getItem("token") ?? "";
by("token").onchange = () => { sessionStorage.setItem("token", by("token").value); follow(); };

function line(kind, text = "") {
  const made = document.createElement("p");
  made.className = kind;
  made.textContent = text;
  by("log").append(made);
  return made;
}

let events, reply;
let last = 0; // the sequence of the last chunk that is drawn
const draw = {
  user_message: (chunk) => { line("user", chunk.message.content); },
  text_delta: (chunk) => { (reply ??= line("assistant")).textContent += chunk.delta; },
  tool_start: (chunk) => { reply = null; line("tool", `${chunk.tool_name} ${JSON.stringify(chunk.arguments)}`); },
  step_committed: () => { reply = null; },
  error: (chunk) => { line("error", chunk.error); },
};

function follow() {
  events?.close();
  const token = encodeURIComponent(by("token").value);
  events = new EventSource(`${base}/stream/${session}?from_sequence=${last}&access_token=${token}`);
  // After a cut, EventSource reconnects by itself and continues after the last chunk it has seen.
  events.addEventListener("chunk", (event) => {
    const chunk = JSON.parse(event.data);
    last = Number(event.lastEventId);
    draw[chunk.type]?.(chunk);
  });
  for (const final of ["end", "fail", "pause", "gone"]) events.addEventListener(final, () => events.close());
}

by("send").onsubmit = async (event) => {
  event.preventDefault();
  const message = by("message").value;
  by("message").value = "";
  const response = await fetch(`${base}/execute`, {
    method: "POST",
    headers: { authorization: `Bearer ${by("token").value}`, "content-type": "application/json" },
    body: JSON.stringify({ agent_type: "assistant", message, session_id: session }),
  });
  if (!response.ok) line("error", (await response.json()).detail ?? response.statusText);
  else follow();
};
if (by("token").value) follow();
</script>
</body>
</html>
"""
