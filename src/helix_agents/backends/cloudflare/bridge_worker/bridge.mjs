// The bridge: a Worker that gives Python outside Cloudflare atomic batches on D1 and on Durable Objects, and browsers
// their streams. Statements come from the Python library; the bridge adds no policy of its own.
//
//   POST /v1/d1/{binding}/batch          {"batch": [[sql, [param, ...]], ...]}
//                                        -> {"results": [[row, ...], ...], "written", "read", "size"} or {"error"} (409)
//   GET  /v1/objects/{name}/socket       WebSocket: {"id", "batch", "changed"?: stream} in, {"id", "results" | "error"} out;
//                                        a batch that names the stream it changed is told to the others: {"changed"}
//   GET  /v1/objects/{name}/stream/{id}  WebSocket for a browser: a stream from ?from_sequence= on, then live, until it ends
//
// `Authorization: Bearer TOKEN` opens everything; ?ticket=...&expires=... opens one browser path for a while.
// A row is an array. A refused batch has written nothing.
import { DurableObject } from "cloudflare:workers";

const VERSION = 1;
const PAGE = 512;
const json = (value, status = 200) => Response.json(value, { status });
const refusal = (error) => ({ error: String(error?.message ?? error).replace(/^D1_ERROR: /, "") });
const frame = (event, data, id) => `{"event":"${event}",${id === undefined ? "" : `"id":${id},`}"data":${data}}`;

export class HelixObject extends DurableObject {
  // A driver's batch, as a whole or not at all.
  batch(statements) {
    const { sql } = this.ctx.storage;
    let read = 0, written = 0;
    const results = this.ctx.storage.transactionSync(() => statements.map(([text, params]) => {
      const cursor = sql.exec(text, ...params);
      const rows = [...cursor.raw()];
      read += cursor.rowsRead;
      written += cursor.rowsWritten;
      return rows;
    }));
    return { results, read, written, size: sql.databaseSize };
  }

  answer({ batch, changed }, sender) {
    let done;
    try {
      done = this.batch(batch);
    } catch (error) {
      return refusal(error);
    }
    if (changed) {
      const news = JSON.stringify({ changed });
      for (const socket of this.ctx.getWebSockets("driver")) if (socket !== sender) trySend(socket, news);
      this.deliver(changed);
    }
    return done;
  }

  async fetch(request) {
    const url = new URL(request.url);
    const [, , , , verb, stream] = url.pathname.split("/").map(decodeURIComponent);
    if (request.headers.get("upgrade") !== "websocket") return json({ error: "expected a WebSocket", bridge: VERSION }, 426);
    return verb === "stream" ? this.acceptBrowser(url, stream) : this.acceptDriver(url);
  }

  async acceptDriver(url) {
    const [client, server] = Object.values(new WebSocketPair());
    this.ctx.acceptWebSocket(server, ["driver"]);
    const ttl = Number(url.searchParams.get("ttl") ?? 0);
    if (ttl && ttl !== this.ctx.storage.kv.get("ttl")) {
      this.ctx.storage.kv.put("ttl", ttl);
      await this.ctx.storage.setAlarm(Date.now() + ttl * 1100);
    }
    return new Response(null, { status: 101, webSocket: client });
  }

  // An object of streams forgets everything a tenth of their ttl after they have expired.
  async alarm() {
    const ttl = this.ctx.storage.kv.get("ttl");
    if (!ttl) return;
    let last = null;
    try {
      last = this.ctx.storage.sql.exec("SELECT MAX(updated_at) AS last FROM __agents_streams").one().last;
    } catch {}  // it was never used
    const due = (last ?? 0) + ttl * 1100;
    if (due > Date.now()) return this.ctx.storage.setAlarm(due);
    await this.ctx.storage.deleteAll();
    for (const socket of this.ctx.getWebSockets("browser")) close(socket, 1000, frame("gone", "{}"));
  }

  // A browser's socket has its stream for a tag and its position for an attachment: both survive hibernation.
  acceptBrowser(url, stream) {
    const from = Number(url.searchParams.get("from_sequence") ?? 0);
    const head = this.head(stream);
    if (!head) return json({ error: "there is no such stream" }, 404);
    if (!Number.isSafeInteger(from) || from < 0) return json({ error: "from_sequence is a whole number" }, 400);
    if (from > head.latest_sequence) return json({ error: "the cursor is ahead of the stream", latest_sequence: head.latest_sequence }, 416);
    const [client, server] = Object.values(new WebSocketPair());
    this.ctx.acceptWebSocket(server, ["browser", "stream " + stream]);
    server.serializeAttachment(from);
    const { status, latest_sequence } = head;
    trySend(server, frame("open", JSON.stringify({ session_id: stream, status, from_sequence: from, latest_sequence })));
    this.deliver(stream);
    return new Response(null, { status: 101, webSocket: client });
  }

  head(stream) {
    try {
      return [...this.ctx.storage.sql.exec("SELECT status, final_output, error, floor, latest_sequence FROM __agents_streams WHERE stream_id = ?", stream)][0];
    } catch {
      return undefined;  // no tables yet: nothing was ever written
    }
  }

  // Send every browser of the stream what it has not had. Nothing is awaited in here, so nothing can come in between.
  deliver(stream) {
    const readers = this.ctx.getWebSockets("stream " + stream).map((socket) => ({ socket, at: socket.deserializeAttachment() }));
    if (!readers.length) return;
    const head = this.head(stream);
    for (const reader of readers) if (!head) close(reader.socket, 1000, frame("gone", "{}"));
    if (!head) return;
    for (const reader of readers) if (reader.at < head.floor) {
      const first = this.chunks(stream, head.floor, 1)[0]?.[0] ?? head.latest_sequence + 1;
      close(reader.socket, 1008, frame("truncated", `{"first_sequence":${first}}`));
      reader.at = Infinity;
    }
    for (let from = Math.min(...readers.map(({ at }) => at)); from < head.latest_sequence;) {
      const rows = this.chunks(stream, from, PAGE);
      if (!rows.length) break;
      const frames = rows.map(([sequence, chunk]) => [sequence, frame("chunk", chunk, sequence)]);
      from = rows.at(-1)[0];
      for (const reader of readers) if (reader.at < from) {
        for (const [sequence, text] of frames) if (sequence > reader.at) trySend(reader.socket, text);
        reader.at = from;
        tryDo(() => reader.socket.serializeAttachment(from));
      }
    }
    if (head.status === "active") return;
    const last = head.status === "failed" ? frame("fail", `{"error":${head.error}}`)
      : frame(head.status === "paused" ? "pause" : "end", `{"status":"${head.status}","output":${head.final_output}}`);
    for (const { socket, at } of readers) if (at !== Infinity) close(socket, head.status === "failed" ? 1011 : 1000, last);
  }

  // The next kept chunks, as [sequence, text]. A row holds those of one append, one after the other.
  chunks(stream, after, limit) {
    const rows = this.ctx.storage.sql.exec(`SELECT first_sequence, chunks FROM __agents_stream_segments
      WHERE stream_id = ?1 AND last_sequence > ?2 AND first_sequence >= COALESCE(
        (SELECT MAX(first_sequence) FROM __agents_stream_segments WHERE stream_id = ?1 AND first_sequence <= ?2 + 1), 0)
      ORDER BY first_sequence`, stream, after).raw();
    const found = [];
    for (const [first, texts] of rows) {
      JSON.parse(texts).forEach((text, place) => { if (first + place > after) found.push([first + place, text]); });
      if (found.length >= limit) break;
    }
    return found;
  }

  webSocketMessage(socket, message) {
    if (!this.ctx.getTags(socket).includes("driver")) return;  // browsers only listen
    const { id, ...request } = JSON.parse(message);
    trySend(socket, JSON.stringify({ id, ...this.answer(request, socket) }));
  }

  webSocketClose(socket, code) {
    tryDo(() => socket.close(code === 1005 || code === 1006 ? 1000 : code));
  }
}

// A socket that has gone away is no concern of the others.
function tryDo(action) { try { action(); } catch {} }
function trySend(socket, text) { tryDo(() => socket.send(text)); }
function close(socket, code, last) { trySend(socket, last); tryDo(() => socket.close(code)); }

async function d1(database, statements) {
  const prepared = statements.map(([text, params]) => (params.length ? database.prepare(text).bind(...params) : database.prepare(text)));
  return database.batch(prepared);
}

async function d1Batch(database, request) {
  try {
    const done = await d1(database, (await request.json()).batch);
    let read = 0, written = 0;
    for (const { meta } of done) {
      read += meta.rows_read ?? 0;
      written += meta.rows_written ?? 0;
    }
    return json({ results: done.map((each) => each.results.map(Object.values)), read, written, size: done.at(-1)?.meta.size_after });
  } catch (error) {
    return json(refusal(error), 409);
  }
}

async function sameSecret(given, wanted) {
  const [one, two] = await Promise.all([given, wanted].map((text) => crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
  return crypto.subtle.timingSafeEqual(one, two);
}

async function allowed(request, url, [, , kind, name, verb, stream], token) {
  if (!token) return false;  // not deployed with a secret: closed
  const bearer = request.headers.get("authorization");
  if (bearer !== null) return sameSecret(bearer, `Bearer ${token}`);
  const expires = url.searchParams.get("expires"), ticket = url.searchParams.get("ticket");
  if (!ticket || !(Number(expires) >= Date.now()) || kind !== "objects" || verb !== "stream") return false;
  const key = await crypto.subtle.importKey("raw", new TextEncoder().encode(token), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const signed = new Uint8Array(await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(`${name}\n${stream}\n${expires}`)));
  return sameSecret(ticket, [...signed].map((byte) => byte.toString(16).padStart(2, "0")).join(""));
}

export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const path = url.pathname.split("/").map(decodeURIComponent), [, version, kind, name, verb] = path;
    if (!(await allowed(request, url, path, env.TOKEN))) return json({ error: "wrong or missing token", bridge: VERSION }, 401);
    if (version === `v${VERSION}` && kind === "objects" && (verb === "socket" || verb === "stream"))
      return env.OBJECTS.getByName(name).fetch(request);
    if (version === `v${VERSION}` && kind === "d1" && verb === "batch" && request.method === "POST")
      return typeof env[name]?.batch === "function" ? d1Batch(env[name], request) : json({ error: `no D1 binding ${name}`, bridge: VERSION }, 404);
    return json({ error: `this bridge speaks version ${VERSION}`, bridge: VERSION }, 404);
  },
};
