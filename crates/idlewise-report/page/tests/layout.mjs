// Where things stand, measured in the browser: on a phone and on a laptop, light and dark.
import assert from "node:assert/strict";
import { test } from "node:test";
import { lookAtAll, open, plain, save } from "./browser.mjs";
import { facts, page as made } from "./synthetic.mjs";

const usual = made(facts());
const SCREENS = [{ width: 390, height: 844 }, { width: 1280, height: 800 }];

/** Waits until all rows are read and drawn: until then, what stands below them moves. */
async function isRead(page) {
    await page.waitForFunction(() => !/Reading …/.test(document.querySelector("main").textContent), null, { polling: 50 });
    await page.waitForTimeout(200);
}

/** A test on each screen in each theme. */
function everywhere(name, check, html = usual) {
    test(name, async () => {
        for (const screen of SCREENS) {
            for (const theme of ["light", "dark"]) {
                const { page, errors, close } = await open(html, { ...screen, theme });
                await isRead(page);
                await check(page, screen);
                assert.deepEqual(errors, []);
                await close();
            }
        }
    });
}

const boxes = (page, selector) => page.locator(selector).evaluateAll((nodes) => nodes.map((node) => {
    const { left, top, right, bottom } = node.getBoundingClientRect();
    return { name: node.textContent, left, top: top + scrollY, right, bottom: bottom + scrollY };
}));

/** With a verdict as long as real ones. */
function talkative() {
    const made_ = facts();
    for (const verdict of made_.facts.verdicts) {
        verdict.facts = Array.from({ length: 3 }, () => ({ basis: "assumed", text: "73 % of ladder’s regret is from 13295 gaps in which it chose C6 and C1E would have been right, most of them 190 µs to 630 µs long." }));
        verdict.limits = verdict.facts.map(({ text }, i) => `${i}: ${text}`);
    }
    return made(made_);
}

everywhere("the first screen has the workload and its machine, three numbers, and the picture", async (page, { width, height }) => {
    assert.equal(await page.locator("h1").textContent(), "all 2 logs on Sapphire Rapids, Xeon Platinum 8460H");
    const [numbers] = await boxes(page, ".numbers");
    const [chart] = await boxes(page, "#front .chart");
    assert.ok(chart.top < 350, `${width}: the picture begins at ${chart.top}`);
    assert.equal((await boxes(page, ".numbers .change")).length, 3);
    for (const { bottom } of [numbers, chart]) assert.ok(bottom <= height, `${width}: ${bottom} is below ${height}`);
    for (const { left, right, name } of await boxes(page, ".numbers dt, .numbers dd")) assert.ok(left >= 0 && right <= width, name);
    const overflow = await page.locator(".numbers dd").evaluateAll((nodes) => nodes.filter((node) => node.scrollWidth > node.clientWidth).map((node) => node.textContent));
    assert.deepEqual(overflow, []);
}, talkative());

test("the three numbers stand on one line each, also where the columns beside the picture are narrowest", async () => {
    for (const width of [390, 1000, 1100]) {
        const { page, close } = await open(usual, { width });
        await page.locator(".numbers .change").last().evaluate((node) => (node.textContent = "−53.0\u202fpoints"));
        const broken = await page.locator(".numbers .change").evaluateAll((nodes) => nodes.filter((node) => node.offsetHeight > 2 * parseFloat(getComputedStyle(node).fontSize)).map((node) => node.textContent));
        assert.deepEqual(broken, [], `${width} px`);
        await close();
    }
});

test("the numbers are of whom the verdict compares, and follow what is chosen", async () => {
    const { facts: all, columns } = facts({ logs: 1 });
    const { page, close } = await open(made({ facts: all, columns }));
    const result = (name) => all.results.find(({ log, machine, governor }) => log === 0 && machine === 0 && all.governors[governor].name === name);
    const numbers = async () => plain(await page.locator(".numbers").innerText());
    const change = (name, base) => `${((result(name).energy_uj / result(base).energy_uj - 1) * 100).toFixed(1).replace("-", "−")} %`;
    assert.match(await numbers(), /^teo instead of menu, the governor in use/);
    await page.locator("select").nth(2).selectOption({ label: "ladder" });
    assert.match(await numbers(), /^ladder instead of menu/);
    assert.ok((await numbers()).includes(change("ladder", "menu")), `${await numbers()}: ${change("ladder", "menu")}`);
    await page.locator("select").nth(3).selectOption({ label: "teo" });
    assert.match(await numbers(), /^ladder instead of teo\n/);
    await page.locator("select").nth(1).selectOption({ label: "Half as slow" });
    assert.match(await page.locator("h1").textContent(), /^log-0, replayed on Half as slow$/);
    await close();
    // The recording does not say, or names a governor that was not replayed.
    for (const verdict of all.verdicts) Object.assign(verdict, { is_in_use: false, other: 2 });
    const other = await open(made({ facts: all, columns }));
    assert.match(await other.page.locator(".numbers").innerText(), /^ladder instead of menu\n/);
    await other.close();
});

test("caveats are folded, and each is said once", async () => {
    const { facts: all, columns } = facts({ logs: 3 });
    for (const log of all.logs) log.doubts.push({ text: "CPU 1 is unobserved", is_minor: false, about: log.name });
    all.notes.doubts.push({ text: "CPU 1 is unobserved (3 times)", is_minor: false, about: "" }, { text: "spr: power of C1 assumed", is_minor: false, about: "" },
        { text: "half: power of C1 assumed", is_minor: false, about: "" });
    for (const verdict of all.verdicts) verdict.limits = ["power of C1 assumed", "A replay keeps the timeline.", "2 other doubts; the notes list them."];
    const { page, close } = await open(made({ facts: all, columns }));
    await lookAtAll(page);
    assert.doesNotMatch(await page.locator("main").innerText(), /unobserved|power of C1 assumed/);
    await page.locator(".limits summary").click();
    for (const details of await page.locator("#provenance summary").all()) await details.click();
    const text = await page.locator("main").innerText();
    for (const caveat of [/unobserved/g, /power of C1 assumed/g, /A replay keeps/g]) assert.equal(text.match(caveat)?.length, 1, String(caveat));
    assert.match(text, /CPU 1 is unobserved \(all 3 logs\)/);
    assert.doesNotMatch(text, /other doubts/);
    await close();
});

test("at 1280 px there is something in the right half beside each section", async () => {
    const { page, close } = await open(usual, SCREENS[1]);
    await isRead(page);
    const empty = await page.evaluate(() => {
        const content = [...document.querySelectorAll("section :is(p, td, summary, li), section :is(svg, canvas)")].flatMap((node) => {
            const range = document.createRange();
            range.selectNodeContents(node);
            return node.matches("svg, canvas") ? [node.getBoundingClientRect()] : [...range.getClientRects()];
        }).filter(({ right, width }) => right > 800 && width > 0);
        return [...document.querySelectorAll("section")].filter((section) => {
            const { top, bottom } = section.getBoundingClientRect();
            return !content.some((box) => box.bottom > top && box.top < bottom);
        }).map(({ id }) => id);
    });
    assert.deepEqual(empty, []);
    await close();
});

/** As many governors as the bundled logs have, whose delays rise at nearly the same share. */
function crowded() {
    const { facts: all, columns } = facts();
    const rises = { deepest: 0.02, "timer-only": 0.2, menu: 0.4, ladder: 0.45, "menu+min": 0.65, teo: 0.92 };
    for (const name of ["deepest", "timer-only", "menu+min"]) {
        all.governors.push({ name, about: "", role: "bound" });
        all.results.push(...all.results.filter(({ governor }) => governor === 3).map((result) => ({ ...result, governor: all.governors.length - 1 })));
    }
    for (const result of all.results) {
        const rise = rises[all.governors[result.governor].name];
        if (rise) result.delays = [0, 0.02, 0.2, 0.4, 0.45, 0.5, 0.65, 0.92, 0.99, 0.999, 1].map((quantile) => ({ quantile, ns: quantile < rise ? 2_000 : 290_000 }));
    }
    return made({ facts: all, columns });
}

const apart = (all) => all.forEach((a, i) => all.slice(i + 1).forEach((b) => assert.ok(
    a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 4 || b.bottom <= a.top + 4, `${a.name} and ${b.name}`)));

everywhere("no name covers another in “How long wake-ups waited”, and none is outside its picture", async (page, { width }) => {
    const [chart] = await boxes(page, "#delays .chart");
    const numbers = await boxes(page, "#delays .chart .number");
    const [from, to] = [Math.max(...numbers.filter(({ name }) => /s$/.test(name)).map(({ right }) => right)), chart.right];
    const names = await boxes(page, "#delays .chart text.line-name");
    assert.equal(names.length, 7);
    for (const { name, left, right, top, bottom } of names) {
        assert.ok(left >= from - 0.5 && right <= to + 0.5 && top >= chart.top && bottom <= chart.bottom, `${width}: ${name} is at ${left} to ${right} of ${from} to ${to}`);
    }
    apart([...names, ...numbers]);
}, crowded());

everywhere("no label covers another in “Energy against delay”; governors at one place share one", async (page, { width }) => {
    for (const governor of ["shallowest", "menu"]) {
        await page.locator("select").nth(2).selectOption({ label: governor });
        await page.waitForTimeout(100);
        const labels = await boxes(page, "#front .chart text");
        apart(labels);
        for (const { name, left, right } of labels) assert.ok(left >= 0 && right <= width, `${width}: ${name}`);
        const [shared] = labels.filter(({ name }) => name.startsWith("shallowest"));
        assert.match(shared.name, /^shallowest( \(.*\))?(, deepest.*timer-only.*menu\+min| and 3 more)/);
    }
}, crowded());

everywhere("a table shows p99 and “too deep” on a phone, and says where it has more columns", async (page, { width }) => {
    await lookAtAll(page);
    const heads = await boxes(page, "#governors thead th");
    for (const name of ["regret", "energy", "p99", "too deep"]) assert.ok(heads.find((head) => head.name === name).right <= width, name);
    for (const summary of await page.locator("summary").all()) await summary.click();
    await page.waitForTimeout(100);
    const marks = await page.locator(".scroll").evaluateAll((nodes) => nodes.map((node) => ({
        label: node.ariaLabel, hides: node.scrollWidth - node.clientWidth > 1, says: node.nextElementSibling?.checkVisibility() ?? false, isReached: node.tabIndex === 0 })));
    for (const { label, hides, says, isReached } of marks) assert.deepEqual([says, isReached], [hides, hides], `${width}: ${label}`);
    assert.equal(marks.some(({ hides }) => hides), width === 390);
    if (width !== 390) return;
    const scroll = page.locator("#governors .scroll");
    await scroll.evaluate((node) => (node.scrollLeft = node.scrollWidth));
    await page.locator("#governors .more").waitFor({ state: "hidden" });
});

test("provenance is folded and names the program once", async () => {
    const { facts: all, columns } = facts({ logs: 3 });
    all.provenance = [{ name: "program", value: all.program }, ...all.logs.flatMap(({ name }, i) => [
        { name: `${name}: clock`, value: "CLOCK_MONOTONIC" }, { name: `${name}: SHA-256 of the file`, value: `abc${i}` }])];
    const { page, close } = await open(made({ facts: all, columns }), SCREENS[1]);
    const [{ top, bottom }] = await boxes(page, "#provenance");
    assert.ok(bottom - top < 200, `${bottom - top} px`);
    await page.locator("#provenance summary").click();
    const text = await page.locator("#provenance").innerText();
    assert.equal(text.match(/^program$/gm).length, 1);
    assert.equal(text.match(/CLOCK_MONOTONIC/g).length, 1);
    assert.match(text, /CLOCK_MONOTONIC \(all 3 logs\)/);
    for (const i of [0, 1, 2]) assert.match(text, new RegExp(`abc${i} \\(log-${i}\\)`));
    await close();
});

test("the address names the chosen gap, and a page that is opened with it shows that gap", async () => {
    const address = save(usual);
    const first = await open(null, { address });
    await first.page.waitForFunction(() => document.querySelector(".timeline").dataset.to);
    await first.page.keyboard.press("w");
    await first.page.waitForSelector(".details h4");
    const [chosen, link] = [await first.page.locator(".details").innerText(), first.page.url()];
    assert.match(link, /&gap=\d+-\d+$/);
    // A link to a section keeps it.
    await first.page.locator("nav a", { hasText: "Provenance" }).click();
    await first.page.waitForFunction((link) => location.href === link, link);
    await first.close();
    const second = await open(null, { address: link });
    await second.page.waitForSelector(".details h4");
    assert.equal(await second.page.locator(".details").innerText(), chosen);
    const [{ top, bottom }] = await boxes(second.page, ".timeline");
    const seen = await second.page.evaluate(() => scrollY);
    assert.ok(top >= seen && bottom <= seen + 900, "the timeline is on the screen");
    await second.page.locator(".timeline").focus();
    await second.page.keyboard.press("Escape");
    assert.doesNotMatch(second.page.url(), /gap=/);
    assert.deepEqual(second.errors, []);
    await second.close();
    const third = await open(null, { address: link.replace(/gap=.*/, "gap=3-12345") });
    await third.page.waitForFunction(() => /the gap that the address names/.test(document.querySelector("#when").textContent));
    await third.close();
});

test("what nobody has scrolled to is there when printed, and what is folded is unfolded", async () => {
    // As under `chromium --headless --print-to-pdf`, which prints before the first frame.
    const { page, close } = await open(null, { address: save(made(facts({ gaps: 40_000, logs: 1 }))), ...SCREENS[1], prepare: (page) => page.addInitScript(() => {
        window.requestAnimationFrame = () => 0;
        window.IntersectionObserver = window.ResizeObserver = class { observe() {} disconnect() {} };
    }) });
    await isRead(page);
    await page.emulateMedia({ media: "print" });
    await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
    for (const id of ["front", "regret", "delays"]) assert.ok((await page.locator(`#${id} .chart text`).count()) > 5, id);
    const text = await page.locator("main").innerText();
    for (const what of [/CPU 3\n/, /chosen ╲ right/, /power of C1, C1E, C6 assumed/, /Versions and inputs/]) assert.match(text, what);
    const cut = await page.locator(".scroll").evaluateAll((nodes) => nodes.filter((node) => getComputedStyle(node).overflowX !== "visible").length);
    assert.equal(cut, 0, "nobody scrolls on paper");
    await page.evaluate(() => dispatchEvent(new Event("afterprint")));
    assert.equal(await page.locator("details[open]").count(), 0);
    await close();
});

test("while rows are read, a section says so, and nothing that is false", async () => {
    const { page, errors, close } = await open(null, { address: save(usual), prepare: (page) => page.addInitScript(() => {
        const gate = new Promise((open) => (window.openGate = open));
        const Real = DecompressionStream;
        window.DecompressionStream = function (format) {
            const { readable, writable } = new Real(format);
            return { writable, readable: readable.pipeThrough(new TransformStream({ transform: (chunk, to) => gate.then(() => to.enqueue(chunk)) })) };
        };
    }) });
    await lookAtAll(page);
    for (const id of ["regret", "when", "cpus"]) assert.match(await page.locator(`#${id}`).innerText(), /Reading …/, id);
    assert.doesNotMatch(await page.locator("main").innerText(), /There are no gaps|Unknown/);
    await page.evaluate(() => window.openGate());
    await page.waitForFunction(() => document.querySelectorAll("#regret .mass").length > 10);
    await isRead(page);
    assert.deepEqual(errors, []);
    await close();
});
