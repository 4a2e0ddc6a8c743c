// Runs Python Workers under miniflare, several of them in one isolate, so that Python starts once. Environment: NODE_MODULES,
// PORT, FOLDER, TOKEN, ARCHIVES (a folder of wheels and zips), SOURCES (Python files, separated by colons), and WORKERS: for each
// Worker its module, its Durable Object class and the name of that class in env, as module:class:binding, separated by commas.
import { readFileSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { start } from "./start.mjs";

const { NODE_MODULES, ARCHIVES, SOURCES, WORKERS, TOKEN } = process.env;
const esm = (path, contents) => ({ type: "ESModule", path, contents: String(contents) });
const data = (path, contents) => ({ type: "Data", path, contents });
const here = (name) => esm(name, readFileSync(join(import.meta.dirname, name)));
const pyodide = (name) => readFileSync(join(NODE_MODULES, "pyodide", name));

const archives = readdirSync(ARCHIVES);
const workers = WORKERS.split(",").map((each) => each.split(":"));
const manifest = {
  modules: workers.map(([module]) => module),
  sources: Object.fromEntries(SOURCES.split(":").map((path) => [basename(path), readFileSync(path, "utf8")])),
  archives,
  lock: JSON.stringify({ info: JSON.parse(pyodide("pyodide-lock.json")).info, packages: {} }),
};
const main = `import { objects, requests } from "./python_host.mjs";
export default requests;
${workers.map(([module, name]) => `export const ${module} = objects("${module}", "${name}");`).join("\n")}`;
await start({
  compatibilityDate: "2026-04-01",
  unsafeEvalBinding: "UNSAFE_EVAL",
  modules: [
    esm("main.mjs", main), here("python_host.mjs"), here("patch.mjs"),
    esm("manifest.mjs", `export default ${JSON.stringify(manifest)}`),
    esm("pyodide.mjs", pyodide("pyodide.mjs")), esm("pyodide.asm.mjs", pyodide("pyodide.asm.mjs")),
    { type: "CompiledWasm", path: "pyodide.asm.wasm", contents: pyodide("pyodide.asm.wasm") },
    data("python_stdlib.zip", pyodide("python_stdlib.zip")),
    ...archives.map((name) => data(name, readFileSync(join(ARCHIVES, name)))),
  ],
  d1Databases: { DB: "DB" },
  bindings: { TOKEN },
  durableObjects: Object.fromEntries(workers.map(([className, , binding]) => [binding, { className, useSQLite: true }])),
});
