// Builds the page into dist/, the same bytes on every machine: the compressor is a script, because
// zlib's output depends on its version and the processor, and a file's time is left out.
//
//   node build.mjs           writes dist/
//   node build.mjs --check   fails if dist/ is not what the sources give

import { readFileSync, writeFileSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { build } from "esbuild";
import { gzipSync } from "fflate";

/** The most that the first load may take: the goal of the dashboard's design. */
const BYTES_MAX = 120 * 1024;

const isCheck = process.argv.includes("--check");
const folder = new URL(".", import.meta.url);
const at = (path) => new URL(path, folder);

const built = await build({
  absWorkingDir: folder.pathname,
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  outdir: "dist",
  write: false,
});

const files = new Map(
  built.outputFiles.map((file) => [file.path.split("/").at(-1), file.contents]),
);
for (const name of ["index.html", "icon.svg"]) files.set(name, readFileSync(at(`src/${name}`)));

let total = 0;
const wrong = [];
mkdirSync(at("dist"), { recursive: true });
const names = new Set([...files.keys()].map((name) => `${name}.gz`));
for (const other of readdirSync(at("dist")).filter((name) => !names.has(name))) {
  if (isCheck) wrong.push(`dist/${other} is not made by build.mjs`);
  else rmSync(at(`dist/${other}`));
}
for (const [name, bytes] of [...files].sort()) {
  const packed = gzipSync(bytes, { level: 9, mem: 12, mtime: 0 });
  total += packed.length;
  const path = `dist/${name}.gz`;
  console.log(`${path}: ${packed.length} bytes, ${bytes.length} unpacked`);
  if (!isCheck) writeFileSync(at(path), packed);
  else if (!isSame(path, packed)) wrong.push(`${path} is not what the sources give`);
}
console.log(`first load: ${total} bytes of at most ${BYTES_MAX}`);
if (total > BYTES_MAX) wrong.push(`the first load takes ${total} bytes, more than ${BYTES_MAX}`);
for (const line of wrong) console.error(`build: ${line}; run: npm ci && npm run build`);
process.exit(wrong.length === 0 ? 0 : 1);

function isSame(path, packed) {
  try {
    return Buffer.compare(readFileSync(at(path)), packed) === 0;
  } catch {
    return false;
  }
}
