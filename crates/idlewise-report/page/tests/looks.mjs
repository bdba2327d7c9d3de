// How every section looks, at three widths in both themes: compared with looks.json, cell by cell. A cell is the mean
// colour of a piece of the section, so another font changes little, and a chart that is missing, black or elsewhere
// changes much. The pictures themselves are in target/page; look at them, then run with IDLEWISE_GOLDEN=rewrite.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { browser, lookAtAll, open } from "./browser.mjs";
import { facts, page as made } from "./synthetic.mjs";

const WIDTHS = [360, 1000, 2200];
const [COLUMNS, ROWS] = [16, 12];
/** Of 255: what the mean of all cells and a single cell may differ. A serif font makes 78, a chart without bars 105. */
const [MEAN_MOST, CELL_MOST] = [7, 90];

const references = new URL("looks.json", import.meta.url);
const isRewriting = process.env.IDLEWISE_GOLDEN === "rewrite";
const folder = new URL("page/", new URL(`${process.env.CARGO_TARGET_DIR ?? new URL("../../../../target", import.meta.url).pathname}/`, "file:"));

/** The mean colours of the cells of each box of a picture. */
async function cells(picture, boxes) {
    const page = await browser.newPage();
    const found = await page.evaluate(async ({ data, boxes, COLUMNS, ROWS }) => {
        const image = new Image();
        image.src = data;
        await image.decode();
        const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
        const context = canvas.getContext("2d", { willReadFrequently: true });
        context.drawImage(image, 0, 0);
        return boxes.map(({ x, y, width, height }) => {
            const { data } = context.getImageData(x, y, width, height);
            const sums = new Float64Array(COLUMNS * ROWS * 4);
            for (let py = 0, at = 0; py < height; py++) {
                for (let px = 0; px < width; px++, at += 4) {
                    const cell = 4 * (Math.floor((py * ROWS) / height) * COLUMNS + Math.floor((px * COLUMNS) / width));
                    for (let i = 0; i < 3; i++) sums[cell + i] += data[at + i];
                    sums[cell + 3]++;
                }
            }
            return Array.from({ length: COLUMNS * ROWS }, (_, cell) =>
                [0, 1, 2].map((i) => Math.round(sums[4 * cell + i] / Math.max(1, sums[4 * cell + 3])).toString(16).padStart(2, "0")).join("")).join("");
        });
    }, { data: `data:image/png;base64,${picture.toString("base64")}`, boxes, COLUMNS, ROWS });
    await page.close();
    return found;
}

const bytes = (cells) => [...Buffer.from(cells, "hex")];

test("every section looks as it did, at three widths in both themes", async () => {
    mkdirSync(folder, { recursive: true });
    const html = made(facts());
    const found = {};
    for (const theme of ["light", "dark"]) {
        for (const width of WIDTHS) {
            const { page, errors, close } = await open(html, { width, theme });
            await lookAtAll(page);
            await page.keyboard.press("w");
            await page.waitForSelector(".details h4");
            // It would stand somewhere in the middle of a picture of the whole page.
            await page.evaluate(() => (document.querySelector(".bar").style.position = "static"));
            await page.waitForTimeout(200);
            const picture = await page.screenshot({ fullPage: true, path: new URL(`${theme}-${width}.png`, folder).pathname });
            const sections = await page.evaluate(() => [...document.querySelectorAll("header, .bar, section")].map((node) => {
                const { x, y, width, height } = node.getBoundingClientRect();
                return { name: node.id || node.className || "header", x: Math.floor(x), y: Math.floor(y + scrollY), width: Math.floor(width), height: Math.floor(height) };
            }));
            const all = await cells(picture, sections);
            sections.forEach(({ name }, i) => (found[`${theme} ${width} ${name}`] = all[i]));
            assert.deepEqual(errors, []);
            await close();
        }
    }
    if (isRewriting) writeFileSync(references, `${JSON.stringify(found, null, 1)}\n`);
    const known = JSON.parse(readFileSync(references, "utf8"));
    assert.deepEqual(Object.keys(found), Object.keys(known), "the sections");
    const changed = Object.entries(found).flatMap(([name, cells]) => {
        const reference = bytes(known[name]);
        const differences = bytes(cells).map((byte, i) => Math.abs(byte - reference[i]));
        const [mean, most] = [differences.reduce((sum, d) => sum + d, 0) / differences.length, Math.max(...differences)];
        return mean > MEAN_MOST || most > CELL_MOST ? [`${name}: differs by ${mean.toFixed(1)} in the mean, ${most} at most`] : [];
    });
    assert.deepEqual(changed, [], `look at ${folder.pathname}, then run with IDLEWISE_GOLDEN=rewrite`);
});
