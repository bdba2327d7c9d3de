// Builds dist/page.js, dist/page.css and dist/LICENSES.txt, which the report includes.
//
//     node build.mjs            writes them
//     node build.mjs --check    says whether building gives what is checked in
import { readFile, readdir, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const here = new URL("./", import.meta.url);
const at = (path) => new URL(path, here);

const { outputFiles, metafile } = await build({
    absWorkingDir: at(".").pathname,
    entryPoints: [{ in: "src/main.ts", out: "page" }, { in: "src/page.css", out: "page" }],
    bundle: true,
    minify: true,
    format: "iife",
    target: "es2022",
    charset: "ascii", // the page may be cut out of a mail
    legalComments: "none", // they are in LICENSES.txt
    outdir: "dist",
    metafile: true,
    write: false,
});

// The report puts both between tags, where nothing may end them.
const files = new Map(outputFiles.map((file) => [file.path.split("/").pop(), file.text]));
for (const [name, text] of files) {
    if (/<\/(script|style)|<!--/i.test(text)) throw new Error(`${name}: it would end its own tag`);
}
files.set("LICENSES.txt", await licences(metafile));

const isCheck = process.argv.includes("--check");
let differ = false;
for (const [name, text] of files) {
    if (!isCheck) {
        await writeFile(at(`dist/${name}`), text);
        console.log(`dist/${name}: ${Buffer.byteLength(text)} bytes`);
    } else if ((await readFile(at(`dist/${name}`), "utf8").catch(() => "")) !== text) {
        console.error(`dist/${name} is not what the sources give: run \`make page\``);
        differ = true;
    }
}
if (isCheck && !differ) console.log("the report's page: building it gives what is checked in");
process.exitCode = differ ? 1 : 0;

/** The licences of everybody whose code is in the built files. */
async function licences({ inputs }) {
    const packages = new Set();
    for (const path of Object.keys(inputs)) {
        const name = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path);
        if (name) packages.add(name[1]);
    }
    const lines = ["page.js and page.css are part of idlewise: MIT OR Apache-2.0.\n"];
    if (packages.size === 0) lines.push("They hold no code of others.\n");
    for (const name of [...packages].sort()) {
        const folder = at(`node_modules/${name}/`);
        const { version } = JSON.parse(await readFile(new URL("package.json", folder), "utf8"));
        const file = (await readdir(folder)).find((file) => /^licen[cs]e/i.test(file));
        lines.push(`\n${name} ${version}:\n\n${(await readFile(new URL(file, folder), "utf8")).trim()}\n`);
    }
    return lines.join("");
}
