// The pictures of docs/report.md, from the page of the bundled logs:
//
//     node pictures.mjs report.html ../../../docs/report
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { browser, open } from "./tests/browser.mjs";

const [path, folder] = process.argv.slice(2);
const address = pathToFileURL(path).href;

async function choose(page, list, label) {
    await page.locator("select").nth(["log", "machine", "governor", "against"].indexOf(list)).selectOption({ label });
}

/** A picture from the top of one element to the end of another. */
async function picture(page, name, from, to = from) {
    await page.evaluate(() => (document.querySelector(".bar").style.position = "static"));
    await page.waitForTimeout(500);
    const box = async (selector) => page.locator(selector).evaluate((node) => {
        const { top, bottom } = node.getBoundingClientRect();
        return { top: top + scrollY, bottom: bottom + scrollY };
    });
    const [{ top }, { bottom }] = [await box(from), await box(to)];
    const { width } = page.viewportSize();
    await page.screenshot({ path: join(folder, name), fullPage: true, clip: { x: 0, y: Math.max(0, top - 16), width, height: bottom - top + 24 } });
}

{
    const { page, close } = await open(null, { address, width: 1200 });
    await picture(page, "verdict.png", "header", ".fold");
    await choose(page, "governor", "menu");
    await choose(page, "against", "teo");
    await page.locator("#regret").scrollIntoViewIfNeeded();
    await picture(page, "regret.png", "#regret");
    await close();
}
{
    const { page, close } = await open(null, { address, width: 1200, theme: "dark" });
    await choose(page, "log", "b-redis");
    await choose(page, "governor", "menu");
    await choose(page, "against", "teo");
    await page.locator("#when").scrollIntoViewIfNeeded();
    await page.waitForFunction(() => document.querySelector(".timeline").dataset.to);
    for (const key of ["w", "w", "-", "-"]) await page.keyboard.press(key);
    await page.waitForSelector(".details h4");
    await picture(page, "timeline.png", "#when");
    await close();
}
await browser.close();
