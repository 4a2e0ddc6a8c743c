// Runs the bridge Worker under miniflare. Environment: NODE_MODULES, BRIDGE (its file), PORT, TOKEN, FOLDER, DATABASES.
// The Worker around it adds two things for tests: a bare reply to compare with, and D1's REST shape on the real binding.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { start } from "./start.mjs";

const { BRIDGE, TOKEN, DATABASES, COMPATIBILITY_DATE } = process.env;
const esm = (path, contents) => ({ type: "ESModule", path, contents: String(contents) });
const names = Array.from({ length: Number(DATABASES ?? 1) }, (_, each) => `DB${each}`);
await start({
  modules: [
    esm("rest.mjs", readFileSync(join(import.meta.dirname, "rest.mjs"))),
    esm("bridge.mjs", readFileSync(BRIDGE)),
  ],
  compatibilityDate: COMPATIBILITY_DATE,
  bindings: { TOKEN },
  d1Databases: Object.fromEntries(names.map((name) => [name, name])),
  durableObjects: { OBJECTS: { className: "HelixObject", useSQLite: true } },
});
