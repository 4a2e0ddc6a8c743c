// The bridge, and beside it what only tests need: /bare, /life/{object}, and D1's REST API (its shape) on the real binding.
import bridge, { HelixObject as BridgeObject } from "./bridge.mjs";

// /life/{object} tells one life of an object from the next: after a hibernation it is another.
export class HelixObject extends BridgeObject {
  life = Math.random();
  fetch(request) {
    return new URL(request.url).pathname.startsWith("/life/") ? json(this.life) : super.fetch(request);
  }
}
const json = (value, status = 200) => Response.json(value, { status });

async function rest(database, request) {
  const body = await request.json();
  try {
    const statements = (body.batch ?? [body]).map(({ sql, params }) =>
      params?.length ? database.prepare(sql).bind(...params) : database.prepare(sql));
    const result = (await database.batch(statements)).map(({ results, meta }) => ({ success: true, meta, results }));
    return json({ success: true, errors: [], messages: [], result });
  } catch (error) {
    return json({ success: false, errors: [{ code: 7500, message: String(error.message) }], messages: [], result: [] }, 400);
  }
}

export default {
  async fetch(request, env) {
    const path = new URL(request.url).pathname.split("/").slice(1).map(decodeURIComponent);
    if (path[0] === "bare") return json({ bytes: (await request.text()).length });
    if (path[0] === "life") return env.OBJECTS.getByName(path[1]).fetch(request);
    if (path[0] === "client") {
      if (request.headers.get("authorization") !== `Bearer ${env.TOKEN}`)
        return json({ success: false, errors: [{ code: 10000, message: "Authentication error" }] }, 401);
      return rest(env[path[6]], request);
    }
    return bridge.fetch(request, env);
  },
};
