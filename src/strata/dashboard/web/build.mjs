// Builds the page and what it needs into ../static: names carry a hash of the content, so that they can be kept for ever.
import { build } from "esbuild";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";

const out = new URL("../static/", import.meta.url).pathname;
await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
const { metafile } = await build({
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  outdir: `${out}assets`,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  legalComments: "linked",
  metafile: true,
  logLevel: "warning",
});
const entry = Object.entries(metafile.outputs).find(([, made]) => made.entryPoint === "src/main.tsx");
const served = (path) => path.slice(path.lastIndexOf("assets/"));
const page = (await readFile("index.html", "utf8"))
  .replace("app.css", served(entry[1].cssBundle))
  .replace("app.js", served(entry[0]));
await writeFile(`${out}index.html`, page);
