// Stock Pyodide with wheels and sources in a plain workerd isolate: what Cloudflare's own bootstrap of Python Workers
// does, from public parts only. A module is a Worker: its `Default` gets the requests below /{module}, without that prefix.
import * as cloudflare from "cloudflare:workers";
import manifest from "./manifest.mjs"; // { lock, modules: [name], sources: {path: text}, archives: [name] }
import { BASE, allowWasm } from "./patch.mjs";
import createPyodideModule from "./pyodide.asm.mjs";
import { loadPyodide } from "./pyodide.mjs";

const CALL = `
import inspect
from workers import Request
from workers.rpc import python_from_rpc, python_to_rpc
def given(value):
    kind = getattr(getattr(value, "constructor", None), "name", "")
    return Request(value) if kind == "Request" else value if kind == "WebSocket" else python_from_rpc(value)
async def call(target, name, args):
    answer = getattr(target, name)(*[given(each) for each in args])
    return python_to_rpc(await answer if inspect.isawaitable(answer) else answer)
call`;

let ready;
const python = (env) => (ready ??= boot(env));

async function boot(env) {
  allowWasm(env.UNSAFE_EVAL);
  const py = await loadPyodide({ indexURL: BASE, createPyodideModule, lockFileContents: manifest.lock });
  py.registerJsModule("_pyodide_entrypoint_helper", {
    cloudflareWorkersModule: cloudflare, cloudflareSocketsModule: {}, doAnImport: (name) => import(name.startsWith("python_modules/") ? `./${name}` : name),
    patchWaitUntil() {}, patch_env_helper: function* () { yield; },
  });
  py.registerJsModule("_cloudflare_compat_flags", { python_workflows_implicit_dependencies: true });
  const site = py.runPython("import sysconfig; sysconfig.get_paths()['purelib']");
  for (const name of manifest.archives) py.unpackArchive((await import(`./${name}`)).default, "zip", { extractDir: site });
  for (const [path, text] of Object.entries(manifest.sources)) py.FS.writeFile(`/home/pyodide/${path}`, text);
  py.runPython("import sys, importlib; sys.path.insert(0, '/home/pyodide'); importlib.invalidate_caches()");
  // Cloudflare imports a Worker once, for a snapshot without entropy: who asks for some at import cannot be deployed.
  // What Python's own modules and the SDK ask for is taken care of there; here the rest is counted.
  py.runPython("import random, secrets, tempfile, uuid, hashlib, asyncio, workers");
  const entropy = crypto.getRandomValues.bind(crypto);
  globalThis.entropyAtImport = 0;
  crypto.getRandomValues = (into) => { globalThis.entropyAtImport += 1; return entropy(into); };
  const modules = Object.fromEntries(manifest.modules.map((name) => [name, py.pyimport(name)]));
  crypto.getRandomValues = entropy;
  globalThis.pythonHeapBytes = () => py._module.HEAPU8.byteLength;
  return { modules, call: py.runPython(CALL) };
}

const METHODS = ["fetch", "alarm", "webSocketMessage", "webSocketClose", "run", "exchange", "forget"];

// The Durable Object class of that name in a module.
export function objects(module, name) {
  class PythonObject extends cloudflare.DurableObject {
    constructor(ctx, env) {
      super(ctx, env);
      ctx.blockConcurrencyWhile(async () => { this.object = (await python(env)).modules[module][name](ctx, env); });
    }
  }
  for (const method of METHODS) PythonObject.prototype[method] = async function (...args) {
    const { call } = await python(this.env);
    if (!(method in this.object)) throw new TypeError(`The RPC receiver does not implement the method "${method}".`);
    return call(this.object, method, method === "fetch" ? args.slice(0, 1) : args);
  };
  return PythonObject;
}

// The Workflow of that name in a module.
export function workflows(module, name) {
  return class extends cloudflare.WorkflowEntrypoint {
    async run(event, step) {
      return (await python(this.env)).modules[module][name](this.ctx, this.env).run(event, step);
    }
  };
}

export const requests = {
  async fetch(request, env, ctx) {
    try {
      const { modules, call } = await python(env);
      const url = new URL(request.url), [, module, ...rest] = url.pathname.split("/");
      // What `wrangler dev --test-scheduled` has: the cron trigger as a request.
      if (rest[0] === "__scheduled") {
        await call(modules[module].Default(ctx, env), "scheduled", [null, env, ctx]);
        return new Response("ran");
      }
      const inside = new Request(new URL(`/${rest.join("/")}${url.search}`, url), request);
      return await call(modules[module].Default(ctx, env), "fetch", [inside]);
    } catch (error) {
      return new Response(String(error.stack ?? error), { status: 500 });
    }
  },
};
