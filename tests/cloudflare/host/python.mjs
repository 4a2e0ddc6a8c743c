// Runs Python Workers under miniflare, several of them in one isolate, so that Python starts once. Environment: NODE_MODULES,
// PORT, FOLDER, TOKEN, ARCHIVES (a folder of wheels and zips), SOURCES (Python files, separated by colons), SDK (the JavaScript of
// the SDK for Workflows), and WORKERS, as JSON: for each Worker its module, and its classes by their names in env.
import { readFileSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { start } from "./start.mjs";

const { NODE_MODULES, ARCHIVES, SOURCES, WORKERS, TOKEN, SDK, COMPATIBILITY_DATE } = process.env;
const esm = (path, contents) => ({ type: "ESModule", path, contents: String(contents) });
const data = (path, contents) => ({ type: "Data", path, contents });
const here = (name) => esm(name, readFileSync(join(import.meta.dirname, name)));
const pyodide = (name) => readFileSync(join(NODE_MODULES, "pyodide", name));

const archives = readdirSync(ARCHIVES);
const workers = JSON.parse(WORKERS); // [{ module, objects: {binding: class}, workflows: {binding: class} }]
const exported = (module, name) => `${module}_${name}`;
const classes = (kind) => workers.flatMap((each) => Object.entries(each[kind]).map(([binding, name]) => ({ module: each.module, binding, name })));
const manifest = {
  modules: workers.map(({ module }) => module),
  sources: Object.fromEntries(SOURCES.split(":").map((path) => [basename(path), readFileSync(path, "utf8")])),
  archives,
  lock: JSON.stringify({ info: JSON.parse(pyodide("pyodide-lock.json")).info, packages: {} }),
};
const lines = (kind) => classes(kind).map(({ module, name }) => `export const ${exported(module, name)} = ${kind}("${module}", "${name}");`);
const main = ['import { objects, requests, workflows } from "./python_host.mjs";', "export default requests;",
  ...lines("objects"), ...lines("workflows")].join("\n");
await start({
  compatibilityDate: COMPATIBILITY_DATE,
  compatibilityFlags: ["no_nodejs_compat", "no_nodejs_compat_v2"], // else Pyodide takes workerd for Node
  unsafeEvalBinding: "UNSAFE_EVAL",
  modules: [
    esm("main.mjs", main), here("python_host.mjs"), here("patch.mjs"),
    esm("manifest.mjs", `export default ${JSON.stringify(manifest)}`),
    esm("pyodide.mjs", pyodide("pyodide.mjs")), esm("pyodide.asm.mjs", pyodide("pyodide.asm.mjs")),
    { type: "CompiledWasm", path: "pyodide.asm.wasm", contents: pyodide("pyodide.asm.wasm") },
    esm("python_modules/workers/workflows.js", readFileSync(SDK)),
    data("python_stdlib.zip", pyodide("python_stdlib.zip")),
    ...archives.map((name) => data(name, readFileSync(join(ARCHIVES, name)))),
  ],
  d1Databases: { DB: "DB" },
  bindings: { TOKEN },
  durableObjects: Object.fromEntries(classes("objects").map(({ module, binding, name }) =>
    [binding, { className: exported(module, name), useSQLite: true }])),
  workflows: Object.fromEntries(classes("workflows").map(({ module, binding, name }) =>
    [binding, { name: binding.toLowerCase(), className: exported(module, name) }])),
});
