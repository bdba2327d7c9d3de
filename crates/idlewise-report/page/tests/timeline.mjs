// The timeline: what it draws, how it moves, and whether its figures are those of the results.
import assert from "node:assert/strict";
import { test } from "node:test";
import { open, plain } from "./browser.mjs";
import { facts, page as made } from "./synthetic.mjs";

const usual = made(facts());

async function toTimeline(page) {
    await page.locator("#when").scrollIntoViewIfNeeded();
    await page.waitForFunction(() => document.querySelector(".timeline").dataset.to);
}

const settled = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
const shownWindow = async (page) => {
    await settled(page);
    return page.locator(".timeline").evaluate(({ dataset }) => ({ from: Number(dataset.from), to: Number(dataset.to), selected: dataset.selected }));
};

/** How many pixels of the timeline have the colour of that name. */
const pixelsOf = async (page, name) => {
    await settled(page);
    return page.locator(".timeline").evaluate((canvas, name) => {
        const probe = document.createElement("i");
        probe.style.color = `var(--${name})`;
        document.body.append(probe);
        const [r, g, b] = getComputedStyle(probe).color.match(/\d+/g).map(Number);
        probe.remove();
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let count = 0;
        for (let i = 0; i < data.length; i += 4) if (data[i] === r && data[i + 1] === g && data[i + 2] === b) count++;
        return count;
    }, name);
};

test("the costs of all gaps, added up in the page, are the results", async () => {
    const made_ = facts({ gaps: 6000, logs: 2 });
    const { page, errors, close } = await open(made(made_));
    await toTimeline(page);
    for (const [log, machine, governor] of [[0, 0, 0], [1, 0, 1], [0, 1, 2]]) {
        await page.locator("select").nth(0).selectOption(String(log));
        await page.locator("select").nth(1).selectOption(String(machine));
        await page.locator("select").nth(2).selectOption(String(governor));
        const result = made_.facts.results.find((result) => result.log === log && result.machine === machine && result.governor === governor);
        await page.waitForFunction((delay) => Math.abs(Number(document.querySelector("#when [data-energy]")?.dataset.delay) - delay) < 1, result.delay_ns);
        const { energy, agrees } = await page.locator("#when [data-energy]").evaluate(({ dataset }) => ({ ...dataset }));
        assert.ok(Math.abs(Number(energy) - result.energy_uj) <= 1e-9 * result.energy_uj, `${energy} and ${result.energy_uj}`);
        assert.equal(agrees, "true");
    }
    assert.deepEqual(errors, []);
    await close();
});

test("zooms from the whole recording to a microsecond and back", async () => {
    const { page, errors, close } = await open(usual);
    await toTimeline(page);
    const whole = await shownWindow(page);
    assert.equal(whole.from, 0);
    for (let i = 0; i < 40; i++) await page.keyboard.press("+");
    const near = await shownWindow(page);
    assert.ok(Math.abs(near.to - near.from - 1000) < 1, `${near.to - near.from} ns`);
    assert.match(plain(await page.locator(".status").textContent()), /^1\.00 µs from/);
    for (let i = 0; i < 40; i++) await page.keyboard.press("-");
    assert.deepEqual(await shownWindow(page), whole);
    await page.keyboard.press("+");
    await page.keyboard.press("0");
    assert.deepEqual(await shownWindow(page), whole);
    assert.deepEqual(errors, []);
    await close();
});

test("the wheel with Ctrl zooms about the pointer, dragging moves", async () => {
    const { page, close } = await open(usual);
    await toTimeline(page);
    const whole = await shownWindow(page);
    const box = await page.locator(".timeline").boundingBox();
    const x = box.x + 70 + (box.width - 70) / 4;
    await page.mouse.move(x, box.y + 60);
    await page.keyboard.down("Control");
    for (let i = 0; i < 5; i++) await page.mouse.wheel(0, -300);
    await page.keyboard.up("Control");
    const zoomed = await shownWindow(page);
    assert.ok(zoomed.to - zoomed.from < (whole.to - whole.from) / 5);
    const under = zoomed.from + (zoomed.to - zoomed.from) / 4;
    assert.ok(Math.abs(under - whole.to / 4) < whole.to * 0.01, "what is under the pointer stays there");
    await page.mouse.down();
    await page.mouse.move(x + 200, box.y + 60, { steps: 4 });
    await page.mouse.up();
    const moved = await shownWindow(page);
    assert.ok(moved.from < zoomed.from);
    assert.ok(Math.abs(moved.to - moved.from - (zoomed.to - zoomed.from)) < 1e-3);
    await close();
});

test("n and p go from miss to miss, w to the worst, and the panel explains the gap", async () => {
    const { page, errors, close } = await open(usual);
    await toTimeline(page);
    const chosen = async (key) => {
        await page.keyboard.press(key);
        return Number((await shownWindow(page)).selected);
    };
    const first = await chosen("n");
    const second = await chosen("n");
    assert.ok(second > first);
    assert.equal(await chosen("p"), first);
    await page.waitForSelector(".details h4");
    const details = plain(await page.locator(".details").innerText());
    for (const what of [/next timer/, /next tick/, /ended by/, /latency limit/, /It expected about/, /too (deep|shallow)/, /best/]) assert.match(details, what);
    await chosen("w");
    const text = plain(await page.locator(".details h3").textContent());
    assert.match(text, /^A gap of [\d.]+ ms on CPU/);
    await page.locator(".timeline").focus();
    await page.keyboard.press("ArrowDown");
    assert.notEqual(await chosen("Enter"), first);
    await page.keyboard.press("Escape");
    assert.equal((await shownWindow(page)).selected, "");
    assert.deepEqual(errors, []);
    await close();
});

test("the panel has the recorded row: length, timer, tick, task, reason", async () => {
    const made_ = facts({ logs: 1, gaps: 400 });
    const { page, errors, close } = await open(made(made_));
    await toTimeline(page);
    await page.locator(".timeline").focus();
    const exact = (ns) => `${ns}`.replace(/\D/g, "");
    const digits = (text) => text.replace(/ (s|ms|µs|ns).*/, "").replace(/\D/g, "").replace(/^0+|0+$/g, "");
    for (let i = 0; i < 25; i++) {
        await page.keyboard.press(i % 3 ? "n" : "w");
        const { selected } = await shownWindow(page);
        const row = made_.rows[0][Number(selected)];
        await page.waitForFunction((start) => document.querySelector(".details dl")?.textContent.replace(/\D/g, "").includes(start), exact(row.start).replace(/0+$/, ""));
        const items = Object.fromEntries(await page.locator(".details > dl > dt").evaluateAll((names) => names.map((name) => [name.textContent, name.nextSibling.textContent])));
        assert.equal(digits(plain(items.length)), exact(row.gap).replace(/0+$/, ""));
        if (row.sleep === null) assert.equal(items["next timer"], "none known");
        else assert.equal(digits(plain(items["next timer"])), exact(row.sleep).replace(/0+$/, ""));
        assert.equal(digits(plain(items["next tick"])), exact(row.tick).replace(/0+$/, ""));
        assert.equal(items["a task ran before"], row.flags & 2 ? "yes" : "no");
        assert.equal(items["tick when recorded"], row.flags & 1 ? "stopped" : "running");
        assert.match(items["ended by"], [/^timer/, /^ipi/, /^resched/, /^irq/, /^softirq/, /^un/][row.reason]);
    }
    assert.deepEqual(errors, []);
    await close();
});

test("a click chooses the gap under it", async () => {
    const { page, close } = await open(usual);
    await toTimeline(page);
    await page.keyboard.press("w");
    const { selected } = await shownWindow(page);
    await page.locator(".timeline").focus();
    await page.keyboard.press("Escape");
    const box = await page.locator(".timeline").boundingBox();
    const row = await page.evaluate(() => document.querySelector(".lanes").scrollTop);
    assert.equal(row, 0);
    // The worst gap is in the middle; its row is one of four.
    let found = false;
    for (let i = 0; i < 4 && !found; i++) {
        await page.mouse.click(box.x + 70 + (box.width - 70) / 2, box.y + 24 + ((box.height - 24) / 4) * (i + 0.5));
        found = (await shownWindow(page)).selected === selected;
    }
    assert.ok(found);
    await close();
});

test("a single miss among 100 000 gaps is seen at every magnification", async () => {
    const { facts: all, columns } = facts({ gaps: 100_000, logs: 1, cpus: 2, machineCount: 1 });
    // All fit but one in the middle of CPU 1, which is too deep; and one that is too shallow.
    const course = all.courses.find(({ machine, governor }) => machine === 0 && all.governors[governor].name === all.logs[0].governor);
    const verdicts = columns[course.columns.verdict.id];
    verdicts.fill(0);
    verdicts[75_000] = 1;
    verdicts[20_000] = 2;
    const { page, errors, close } = await open(made({ facts: all, columns }));
    await toTimeline(page);
    assert.ok((await pixelsOf(page, "deep")) >= 2);
    assert.ok((await pixelsOf(page, "shallow")) >= 2);
    await page.locator(".timeline").focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("n");
    assert.equal((await shownWindow(page)).selected, "75000");
    for (let i = 0; i < 16; i++) {
        await page.keyboard.press("+");
        assert.ok((await pixelsOf(page, "deep")) >= 2, `magnified 2^${i + 1} times`);
    }
    // It is the test that reads the canvas again and again.
    assert.deepEqual(errors.filter((error) => !error.startsWith("Canvas2D: Multiple readback")), []);
    await close();
});

test("gaps that the page leaves out are said and drawn as unknown", async () => {
    const made_ = facts({ logs: 1 });
    const [detail] = made_.facts.details;
    detail.is_sampled = true;
    detail.gap_count = 10_000_000;
    detail.how = "3 000 of 10 000 000 gaps are shown: the worst misses and the longest.";
    made_.columns[detail.columns.skipped.id].fill(5);
    const { page, errors, close } = await open(made(made_));
    await toTimeline(page);
    assert.match(await page.locator("#when .unknown").innerText(), /3 000 of 10 000 000 gaps/);
    assert.doesNotMatch(await page.locator("#when").innerText(), /please report/);
    assert.ok((await pixelsOf(page, "rule")) > 500);
    assert.deepEqual(errors, []);
    await close();
});
