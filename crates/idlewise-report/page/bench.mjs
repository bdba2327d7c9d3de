// How fast the page is, from the browser's own trace: first paint, and the frames of the timeline while it zooms.
// Prints figures and asserts nothing.
//
//     node bench.mjs                 made-up recordings of 10 000, 100 000 and 1 000 000 gaps
//     node bench.mjs report.html …   these pages
import { loadavg } from "node:os";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { browser, save } from "./tests/browser.mjs";
import { facts, page as made } from "./tests/synthetic.mjs";

const quantile = (values, q) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(q * values.length))] ?? NaN;
const ms = (value) => value.toFixed(1).padStart(8);

const heading = ["page", "size", "first paint", "usable", "timeline", "frame p50", "frame p99", "frame max", "frames/s", "slider p50"];
console.log(`load ${loadavg()[0].toFixed(1)}; times in ms; a frame's time is that of its script in the trace, without the drawing of the browser`);
console.log(heading.join(" | "));

const paths = process.argv.slice(2);
const pages = paths.length
    ? paths.map((path) => [path, () => ({ address: pathToFileURL(path).href, size: readFileSync(path).length })])
    : [1e4, 1e5, 1e6].map((gaps) => [`${gaps} gaps`, () => {
        const html = made(facts({ gaps, logs: 1, cpus: 8, machineCount: 1 }));
        return { address: save(html), size: html.length };
    }]);
for (const [name, make] of pages) await bench(name, make());
await browser.close();

async function bench(name, { address, size }) {
    const context = await browser.newContext({ viewport: { width: 1600, height: 900 } });
    const page = await context.newPage();
    const begin = performance.now();
    await page.goto(address);
    await page.waitForSelector("html.ready");
    const usable = performance.now() - begin;
    await page.waitForTimeout(300);
    const firstPaint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN);

    const shown = performance.now();
    await page.locator("#when").scrollIntoViewIfNeeded();
    await page.waitForFunction(() => document.querySelector(".timeline")?.dataset.to, undefined, { timeout: 120_000 });
    const timeline = performance.now() - shown;

    const box = await page.locator(".timeline").boundingBox();
    await page.mouse.move(box.x + box.width * 0.6, box.y + 60);
    await browser.startTracing(page, { categories: ["devtools.timeline"] });
    const zooming = performance.now();
    const frames = await page.evaluate(() => new Promise((done) => {
        const canvas = document.querySelector(".timeline");
        const { left, top, width } = canvas.getBoundingClientRect();
        let count = 0;
        const step = () => {
            if (count++ === 240) return done(count);
            // In for two seconds, out for two.
            const deltaY = count <= 120 ? -40 : 40;
            canvas.dispatchEvent(new WheelEvent("wheel", { deltaY, ctrlKey: true, clientX: left + width * 0.6, clientY: top + 60, bubbles: true, cancelable: true }));
            requestAnimationFrame(step);
        };
        requestAnimationFrame(step);
    }));
    const seconds = (performance.now() - zooming) / 1000;
    const trace = JSON.parse((await browser.stopTracing()).toString());
    const times = trace.traceEvents.filter(({ name, ph }) => name === "FireAnimationFrame" && ph === "X").map(({ dur }) => dur / 1000).filter((time) => time > 0.2);

    const slider = await page.evaluate(async () => {
        const slider = document.getElementById("lambda");
        const times = [];
        for (let value = 0; value <= 200; value += 10) {
            slider.value = String(value);
            const before = performance.now();
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            times.push(performance.now() - before);
            await new Promise((done) => requestAnimationFrame(done));
        }
        return times;
    });
    console.log([name, `${(size / 1e6).toFixed(2)} MB`, ms(firstPaint), ms(usable), ms(timeline), ms(quantile(times, 0.5)), ms(quantile(times, 0.99)),
        ms(Math.max(...times)), (frames / seconds).toFixed(1), ms(quantile(slider, 0.5))].join(" | "));
    await context.close();
}
