// A real browser for the tests: opens pages from file://, and keeps what must not happen.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const folder = mkdtempSync(join(tmpdir(), "idlewise-page-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

// Playwright gives each browser a user-data folder of its own.
export const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--force-color-profile=srgb"],
});

let number = 0;

/** Writes a page to a file and returns its address. */
export function save(html) {
    const path = join(folder, `${number++}.html`);
    writeFileSync(path, html);
    return pathToFileURL(path).href;
}

/** Opens a page. `errors` has what its console said and what it threw, `requests` what it asked for besides itself. */
export async function open(html, { width = 1300, height = 900, theme = "light", address = save(html), prepare, ...more } = {}) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: "reduce", ...more });
    const page = await context.newPage();
    page.setDefaultTimeout(10_000);
    const errors = [];
    const requests = [];
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && errors.push(message.text()));
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("dialog", (dialog) => {
        errors.push(`dialog: ${dialog.message()}`);
        void dialog.dismiss();
    });
    // What the page's policy has stopped never left.
    const isStopped = (request) => request.failure()?.errorText === "csp" || request.url().startsWith("data:");
    const keep = (request) => request.url().split("#")[0] !== address.split("#")[0] && !isStopped(request) && requests.push(request.url());
    page.on("requestfinished", keep);
    page.on("requestfailed", keep);
    await prepare?.(page);
    await page.goto(address);
    await page.waitForSelector("html.ready");
    return { page, errors, requests, close: () => context.close() };
}

/** Looks at every section, so that all of the page is decoded and drawn. */
export async function lookAtAll(page) {
    for (const section of await page.locator("section").all()) {
        await section.scrollIntoViewIfNeeded();
        await page.waitForTimeout(60);
    }
    await page.waitForTimeout(200);
    await page.evaluate(() => scrollTo(0, 0));
}

/** What the page lays out as text, whatever the language of its numbers' spaces. */
export const plain = (text) => text.replace(/[\u202f\u00a0]/g, " ");
