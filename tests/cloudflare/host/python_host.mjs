// Stock Pyodide with wheels and sources in a plain workerd isolate: what Cloudflare's own bootstrap of Python Workers
// does, from public parts only. `PyDO` stands for the Durable Object
// class of the Python module (`manifest.objects`), `Default` is its entrypoint.
import * as cloudflare from "cloudflare:workers";
import manifest from "./manifest.mjs"; // { lock, main, sources: {path: text}, archives: [name], methods: [name] }
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
    cloudflareWorkersModule: cloudflare, cloudflareSocketsModule: {}, doAnImport: (name) => import(name),
    patchWaitUntil() {}, patch_env_helper: function* () { yield; },
  });
  py.registerJsModule("_cloudflare_compat_flags", {});
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
  const main = py.pyimport(manifest.main);
  crypto.getRandomValues = entropy;
  globalThis.pythonHeapBytes = () => py._module.HEAPU8.byteLength;
  return { main, call: py.runPython(CALL) };
}

export class PyDO extends cloudflare.DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    ctx.blockConcurrencyWhile(async () => { this.object = (await python(env)).main[manifest.objects](ctx, env); });
  }
}
for (const method of manifest.methods) PyDO.prototype[method] = async function (...args) {
  return (await python(this.env)).call(this.object, method, method === "fetch" ? args.slice(0, 1) : args);
};

export default {
  async fetch(request, env, ctx) {
    try {
      const { main, call } = await python(env);
      return await call(main.Default(ctx, env), "fetch", [request]);
    } catch (error) {
      return new Response(String(error.stack ?? error), { status: 500 });
    }
  },
};
