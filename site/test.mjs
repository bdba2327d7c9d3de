// The site in a real browser, on a phone and on a desk, light and dark: node site/test.mjs target/site
// Pictures of every page are in target/site-pictures.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { extname, join, normalize, resolve } from "node:path";
import { after, test } from "node:test";
import { browser } from "../crates/idlewise-report/page/tests/browser.mjs";

const axe = createRequire(new URL("../crates/idlewise-report/page/tests/", import.meta.url)).resolve("axe-core/axe.min.js");
const folder = resolve(process.argv[2] ?? "target/site");
const pictures = `${folder}-pictures`;
rmSync(pictures, { recursive: true, force: true });
mkdirSync(pictures);

const TYPES = { ".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".json": "application/json", ".png": "image/png",
    ".svg": "image/svg+xml", ".wasm": "application/wasm", ".woff2": "font/woff2" };
const server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://site").pathname));
    try {
        const content = readFileSync(join(folder, path));
        response.writeHead(200, { "Content-Type": TYPES[extname(path)] ?? "text/plain" }).end(content);
    } catch {
        response.writeHead(404).end();
    }
}).listen(0, "127.0.0.1");
await new Promise((listening) => server.once("listening", listening));
const site = `http://127.0.0.1:${server.address().port}`;
after(async () => {
    await browser.close();
    server.close();
});

const PAGES = {
    index: "index.html",
    guide: "guide/introduction.html",
    "guide-wide-table": "guide/arena.html",
    python: "python/index.html",
    rust: "rust/idlewise_core/trait.Governor.html",
    report: "report.html",
};
const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };
const DESK = { viewport: { width: 1280, height: 800 } };
const LOOKS = ["light", "dark"].flatMap((colorScheme) => [PHONE, DESK].map((device) => ({ ...device, colorScheme })));

/** Opens a page; what it asks for and does not get, and what it asks others for, are errors. */
async function open(path, look) {
    const context = await browser.newContext({ reducedMotion: "reduce", ...look });
    const page = await context.newPage();
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("request", (request) => request.url().startsWith("http") && !request.url().startsWith(`${site}/`) && errors.push(`asks for ${request.url()}`));
    page.on("response", (response) => response.status() >= 400 && errors.push(`${response.status()} ${response.url()}`));
    await page.goto(`${site}/${path}`, { waitUntil: "networkidle" });
    return { page, errors, close: () => context.close() };
}

/** The elements that stick out to the right, most of them parts of the first. */
const overflowing = () => {
    const width = innerWidth;
    const all = [...document.body.querySelectorAll("*")].filter((node) => node.getBoundingClientRect().right > width + 1);
    return all.slice(0, 5).map((node) => node.outerHTML.slice(0, 100));
};

/** From 0, black, to 1, white. */
const brightness = () => {
    const colours = [document.body, document.documentElement].map((node) => getComputedStyle(node).backgroundColor);
    const canvas = document.createElement("canvas").getContext("2d");
    canvas.fillStyle = colours.find((colour) => colour !== "rgba(0, 0, 0, 0)");
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data.slice(0, 3).reduce((sum, part) => sum + part, 0) / 3 / 255;
};

for (const [name, path] of Object.entries(PAGES)) {
    test(`${path} fits a phone and a desk, and is dark for those who prefer it`, async () => {
        for (const look of LOOKS) {
            const { width } = look.viewport;
            const what = `${path}, ${look.colorScheme}, ${width} px`;
            const { page, errors, close } = await open(path, look);
            await page.screenshot({ path: join(pictures, `${name}-${look.colorScheme}-${width}.png`) });
            const wide = await page.evaluate(() => document.documentElement.scrollWidth);
            assert.ok(wide <= width, `${what}: the page is ${wide} px wide:\n${(await page.evaluate(overflowing)).join("\n")}`);
            const bright = await page.evaluate(brightness);
            assert.ok(look.colorScheme === "dark" ? bright < 0.3 : bright > 0.7, `${what}: the background's brightness is ${bright}`);
            assert.deepEqual(errors, [], what);
            await close();
        }
    });
}

test("each part leads back to the first page", async () => {
    for (const path of ["guide/introduction.html", "guide/park/c.html", "python/index.html", "rust/idlewise_core/trait.Governor.html"]) {
        for (const device of path.startsWith("rust") ? [DESK] : [PHONE, DESK]) {
            const { page, close } = await open(path, device);
            await page.click("a.first-page");
            assert.equal(page.url(), `${site}/index.html`, path);
            await close();
        }
    }
});

test("every other page of the guide and of the Python reference fits a phone", async () => {
    const { page, close } = await open("index.html", { ...PHONE, colorScheme: "light" });
    const pages = readdirSync(folder, { recursive: true }).filter((path) => /^(guide|python)\/.*\.html$/.test(path) && !/toc\.html$/.test(path));
    assert.ok(pages.length > 20);
    const wide = [];
    for (const path of pages) {
        await page.goto(`${site}/${path}`);
        const width = await page.evaluate(() => document.documentElement.scrollWidth);
        if (width > PHONE.viewport.width) wide.push(`${path} is ${width} px wide: ${(await page.evaluate(overflowing))[0]}`);
    }
    assert.deepEqual(wide, []);
    await close();
});

test("the first page meets WCAG 2 AA: its text has a contrast of at least 4.5", async () => {
    for (const look of LOOKS) {
        const { page, close } = await open("index.html", look);
        await page.addScriptTag({ path: axe });
        const found = await page.evaluate(() => axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21aa"] }));
        assert.ok(found.passes.some(({ id }) => id === "color-contrast"));
        assert.deepEqual(found.violations.map(({ id, nodes }) => [id, nodes[0].html, nodes[0].failureSummary]), []);
        await page.screenshot({ path: join(pictures, `index-whole-${look.colorScheme}-${look.viewport.width}.png`), fullPage: true });
        await close();
    }
});

test("the terminal's text has that contrast, too, and the terminal stands still for those who prefer it", async () => {
    for (const [reducedMotion, name] of [["reduce", "terminal-still.svg"], ["no-preference", "terminal.svg"]]) {
        const { page, close } = await open("index.html", { ...DESK, reducedMotion });
        assert.equal(await page.evaluate(() => document.querySelector(".first img").currentSrc.split("/").pop()), name);
        await close();
    }
    for (const look of LOOKS.filter(({ viewport }) => viewport === DESK.viewport)) {
        for (const reducedMotion of ["reduce", "no-preference"]) {
            const { page, close } = await open("terminal.svg", { ...look, reducedMotion });
            const { contrasts, animations } = await page.evaluate(() => {
                const luminance = (node) => {
                    const parts = getComputedStyle(node).fill.match(/\d+/g).map((part) => part / 255);
                    const [r, g, b] = parts.map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
                    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
                };
                const paper = luminance(document.querySelector("rect"));
                const contrasts = [...document.querySelectorAll("text")].map((node) => {
                    const text = luminance(node);
                    return (Math.max(text, paper) + 0.05) / (Math.min(text, paper) + 0.05);
                });
                return { contrasts, animations: document.getAnimations().length };
            });
            assert.ok(contrasts.length > 20 && Math.min(...contrasts) >= 4.5, `${look.colorScheme}: ${Math.min(...contrasts)}`);
            assert.equal(animations, reducedMotion === "reduce" ? 0 : 1);
            await page.screenshot({ path: join(pictures, `terminal-${look.colorScheme}-${reducedMotion}.png`) });
            await close();
        }
    }
});

for (const [path, word, found] of [
    ["index.html", "residency", "#mdbook-searchresults li, #searchresults li"],
    ["python/index.html", "replay", ".md-search-result__item"],
    ["rust/idlewise_core/index.html", "Governor", ".search-results.active a"],
]) {
    test(`the search of ${path} finds ${word}`, async () => {
        const { page, errors, close } = await open(path, DESK);
        if (path.startsWith("rust")) await page.goto(`${site}/${path}?search=${word}`);
        const input = page.locator("input[type=search], .search-input, .md-search__input").first();
        // As a person does; and again, since on a busy machine the page may not listen yet.
        for (let attempts = 30; ; attempts--) {
            if (!path.startsWith("rust")) {
                await input.blur();
                await input.click();
                await input.fill(word);
                if (path === "index.html") await input.press("Enter");
            }
            const wait = page.waitForSelector(found, { timeout: 2_000 });
            if (await (attempts > 0 ? wait.catch(() => null) : wait)) break;
        }
        assert.match((await page.locator(found).allInnerTexts()).join("\n"), new RegExp(word, "i"));
        await page.screenshot({ path: join(pictures, `search-${path.split("/")[0].replace(".html", "")}.png`) });
        assert.deepEqual(errors, []);
        await close();
    });
}
