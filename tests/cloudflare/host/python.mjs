// Runs a Python Worker under miniflare. Environment: NODE_MODULES, PORT, FOLDER, ARCHIVES (a folder of wheels and zips),
// SOURCES (files, separated by colons; the first is the main module), CLASS (the Durable Object in it), METHODS (of that), BINDING
// (its name in env), TOKEN.
import { readFileSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { start } from "./start.mjs";

const { NODE_MODULES, ARCHIVES, SOURCES, METHODS, CLASS, BINDING, TOKEN } = process.env;
const esm = (path, contents) => ({ type: "ESModule", path, contents: String(contents) });
const data = (path, contents) => ({ type: "Data", path, contents });
const here = (name) => esm(name, readFileSync(join(import.meta.dirname, name)));
const pyodide = (name) => readFileSync(join(NODE_MODULES, "pyodide", name));

const archives = readdirSync(ARCHIVES);
const sources = SOURCES.split(":");
const manifest = {
  main: basename(sources[0], ".py"),
  methods: METHODS.split(","),
  sources: Object.fromEntries(sources.map((path) => [basename(path), readFileSync(path, "utf8")])),
  archives,
  objects: CLASS,
  lock: JSON.stringify({ info: JSON.parse(pyodide("pyodide-lock.json")).info, packages: {} }),
};
await start({
  compatibilityDate: "2026-04-01",
  unsafeEvalBinding: "UNSAFE_EVAL",
  modules: [
    here("python_host.mjs"), here("patch.mjs"),
    esm("manifest.mjs", `export default ${JSON.stringify(manifest)}`),
    esm("pyodide.mjs", pyodide("pyodide.mjs")), esm("pyodide.asm.mjs", pyodide("pyodide.asm.mjs")),
    { type: "CompiledWasm", path: "pyodide.asm.wasm", contents: pyodide("pyodide.asm.wasm") },
    data("python_stdlib.zip", pyodide("python_stdlib.zip")),
    ...archives.map((name) => data(name, readFileSync(join(ARCHIVES, name)))),
  ],
  d1Databases: { DB: "DB" },
  bindings: { TOKEN },
  durableObjects: { [BINDING]: { className: "PyDO", useSQLite: true } },
});
