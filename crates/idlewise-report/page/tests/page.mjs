// The page as somebody uses it who has just been sent it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { browser, lookAtAll, open, plain, save } from "./browser.mjs";
import { facts, page as made } from "./synthetic.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const usual = made(facts());

/** What a stranger may put into a log: it must be shown, and do nothing. */
const HOSTILE = "</script><script>window.hit=1</script><img src=x onerror='window.hit=2'><!--<script>\u001b[31m\u202egnp\u0007\u2028'\"&lt;";

async function violations(page) {
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => window.axe.run());
    return violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ target, failureSummary }) => `${target} ${failureSummary}`).join("; ")}`);
}

for (const theme of ["light", "dark"]) {
    test(`in the ${theme} theme all sections are there, the console is silent, nothing is requested, axe-core finds nothing`, async () => {
        const { page, errors, requests, close } = await open(usual, { theme });
        await lookAtAll(page);
        const titles = await page.locator("h2").allTextContents();
        for (const title of ["Verdict", "Energy against delay", "Where the regret is", "When", "CPU by CPU", "What ended the gaps",
            "How long wake-ups waited", "Promotions and free rides", "Tables", "Provenance"]) assert.ok(titles.includes(title), title);
        await page.keyboard.press("w");
        await page.waitForSelector(".details h4");
        for (const summary of await page.locator("summary").all()) await summary.click();
        assert.deepEqual(await violations(page), []);
        await page.keyboard.press("?");
        await page.waitForSelector("dialog[open]");
        assert.deepEqual(await violations(page), []);
        assert.deepEqual(errors, []);
        assert.deepEqual(requests, []);
        await close();
    });
}

test("a phone's width needs no sideways scrolling, and axe-core finds nothing there", async () => {
    for (const width of [360, 1000, 3000]) {
        const { page, errors, close } = await open(usual, { width });
        await lookAtAll(page);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(overflow <= 0, `${width}: ${overflow} px too wide`);
        if (width === 360) assert.deepEqual(await violations(page), []);
        assert.deepEqual(errors, []);
        await close();
    }
});

test("each log is shown on the machine that it was replayed on, and each machine with a log that was", async () => {
    const all = facts();
    const own = all.facts;
    own.results = own.results.filter(({ log, machine }) => log === null || log === machine);
    own.logs.forEach((log, i) => { log.machine = own.machines[i].id; });
    const { page, errors, close } = await open(made({ ...all, facts: own }));
    const select = (index) => page.locator("select").nth(index);
    const shown = async () => [await select(0).inputValue(), await select(1).inputValue()];
    // Of all logs, those of the machine: the title, and the gaps that are counted below it.
    const title = async () => `${await page.locator("h1").innerText()}: ${await page.locator(".subtitle").innerText()}`;
    const first = await title();
    assert.ok(first.startsWith(`${own.logs[0].name} on ${own.machines[0].title}: `), first);
    assert.ok(first.replaceAll(/\D/g, "").includes(String(own.logs[0].gap_count)), first);
    for (const log of ["1", "0"]) {
        await select(0).selectOption(log);
        assert.deepEqual(await shown(), [log, log]);
        assert.ok(!(await page.locator("main").innerText()).includes("No governor was replayed"));
        const subtitle = await page.locator(".subtitle").innerText();
        assert.ok(!subtitle.includes(" on "), `the title says on which machine: ${subtitle}`);
    }
    await select(1).selectOption("1");
    assert.deepEqual(await shown(), ["1", "1"]);
    assert.deepEqual(errors, []);
    await close();
});

test("a hostile log is shown as it is written, runs nothing and breaks nothing", async () => {
    const { page, errors, requests, close } = await open(made(facts({ hostile: HOSTILE })));
    await lookAtAll(page);
    await page.keyboard.press("w");
    await page.waitForSelector(".details h4");
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.equal(await page.locator("img, main script").count(), 0);
    const text = await page.locator("main").innerText();
    assert.ok(text.includes("</script><script>window.hit=1</script>"));
    assert.ok(text.includes("\\u{1b}[31m\\u{202e}gnp"));
    assert.doesNotMatch(text, /[\u001b\u0007\u202e\u2028]/);
    assert.ok((await page.locator("section").count()) >= 10);
    assert.deepEqual(errors, []);
    assert.deepEqual(requests, []);
    await close();
});

test("the policy forbids other scripts, styles and requests", async () => {
    const { page, errors, requests, close } = await open(usual);
    await page.evaluate(() => {
        const script = document.createElement("script");
        script.textContent = "window.hit = 1";
        document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", "<img src='https://example.com/x'><p onclick='window.hit = 2' style='color: red' id='probe'>x</p>");
        document.getElementById("probe").click();
        return fetch("https://example.com/").catch(() => {});
    });
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.notEqual(await page.evaluate(() => getComputedStyle(document.getElementById("probe")).color), "rgb(255, 0, 0)");
    assert.ok(errors.some((error) => /Content Security Policy/.test(error)));
    assert.deepEqual(requests, []);
    await close();
});

test("without JavaScript the verdict can be read", async () => {
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(save(usual));
    assert.match(await page.locator("main").innerText(), /comes nearest to the oracle/);
    await context.close();
});

const names = (page) => page.locator("#governors tbody th").allTextContents();
const regrets = async (page) => (await page.locator("#governors tbody tr td:nth-child(2)").allTextContents()).map((text) => plain(text));

test("the slider turns the lines of equal cost and sorts the table again", async () => {
    const { page, errors, close } = await open(usual);
    const slider = page.locator("#lambda");
    const set = async (value) => {
        await slider.evaluate((slider, value) => {
            slider.value = value;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
        }, String(value));
        await page.waitForTimeout(100);
    };
    const slope = () => page.locator("#front .iso.least").evaluate((line) => line.y2.baseVal.value - line.y1.baseVal.value);
    await set(0);
    assert.equal(await slope(), 0);
    assert.match(plain(await page.locator("#lambda-value").textContent()), /λ=0: 0/);
    const atZero = await names(page);
    const regretsAtZero = await regrets(page);
    await set(200);
    assert.ok((await slope()) > 0);
    assert.match(plain(await page.locator("#lambda-value").textContent()), /λ=4: 16\.0 W/);
    const atFour = await names(page);
    assert.notDeepEqual(atFour, atZero, "another price, another order");
    assert.notDeepEqual(await regrets(page), regretsAtZero);
    const numbers = (await page.locator("#governors tbody tr td:nth-child(2)").allTextContents()).map((text) => parseFloat(text.replace(/\u202f/g, "")));
    assert.deepEqual(numbers, [...numbers].sort((a, b) => a - b), "the cheapest comes first");
    assert.deepEqual(errors, []);
    await close();
});

test("a table sorts by each column and copies CSV with full precision, and Markdown", async () => {
    const { page, close } = await open(usual, { permissions: ["clipboard-read", "clipboard-write"] });
    const energy = page.locator("#governors thead button", { hasText: "energy" });
    await energy.click();
    assert.equal(await page.locator("#governors thead th", { hasText: "energy" }).getAttribute("aria-sort"), "ascending");
    const up = await names(page);
    await energy.click();
    assert.deepEqual(await names(page), up.reverse());
    const copied = async (place) => {
        await page.locator("#governors .tools button").nth(place).click();
        await page.waitForFunction((place) => document.querySelectorAll("#governors .tools button")[place].textContent === "copied", place);
        return page.evaluate(() => navigator.clipboard.readText());
    };
    const csv = await copied(0);
    assert.match(csv, /^governor,regret,energy,/);
    const { facts: all } = facts();
    const menu = all.results.find(({ log, machine, governor }) => log === null && machine === 0 && governor === 0);
    const row = csv.split("\n").find((line) => line.startsWith("menu,")).split(",");
    assert.equal(Number(row[2]), menu.energy_uj);
    assert.match(await copied(1), /^\| governor \| regret \|/);
    await close();
});

test("copying works where the clipboard's interface is missing", async () => {
    const { page, close } = await open(usual, { permissions: ["clipboard-read"] });
    await page.evaluate(() => Object.defineProperty(navigator, "clipboard", { value: undefined, configurable: true }));
    await page.locator("#provenance .command button").click();
    await page.locator("#provenance .command button", { hasText: /^copied$/ }).waitFor();
    await close();
});

test("everything can be reached and worked by keys alone", async () => {
    const { page, errors, close } = await open(usual);
    const seen = new Set();
    for (let i = 0; i < 140; i++) {
        await page.keyboard.press("Tab");
        const at = await page.evaluate(() => {
            const { activeElement: at } = document;
            const { outlineStyle, outlineWidth } = getComputedStyle(at);
            const isSeen = at === document.body || (outlineStyle !== "none" && parseFloat(outlineWidth) >= 1);
            return { what: at.matches(".timeline") ? "timeline" : at.tagName, isSeen };
        });
        assert.ok(at.isSeen, `${at.what} has the focus, and nothing shows it`);
        seen.add(at.what);
    }
    for (const what of ["A", "SELECT", "INPUT", "BUTTON", "timeline"]) assert.ok(seen.has(what), what);
    await page.locator("#lambda").focus();
    await page.keyboard.press("End");
    assert.match(plain(await page.locator("#lambda-value").textContent()), /λ=4/);
    const teo = page.locator("#governors tbody button", { hasText: "teo" });
    await teo.focus();
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("select").nth(2).evaluate((list) => list.selectedOptions[0].textContent), "teo");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "teo", "the focus stays on what was pressed");
    await page.keyboard.press("?");
    await page.waitForSelector("dialog[open]");
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("dialog[open]").count(), 0);
    assert.deepEqual(errors, []);
    await close();
});

test("single keys can be turned off", async () => {
    const { page, close } = await open(usual);
    await page.keyboard.press("?");
    await page.locator("dialog input").uncheck();
    await page.locator("dialog button").click();
    await page.keyboard.press("?");
    assert.equal(await page.locator("dialog[open]").count(), 0);
    await close();
});

test("two governors are compared everywhere", async () => {
    const { page, errors, close } = await open(usual);
    await page.locator("select").nth(3).selectOption({ label: "teo" });
    await lookAtAll(page);
    assert.match(await page.locator("#regret .caption").textContent(), /menu minus teo/);
    assert.equal(await page.locator("#front .governor.against").count(), 1);
    assert.equal(await page.locator("#delays .line.against").count(), 1);
    assert.deepEqual(errors, []);
    await close();
});

test("the address says what is looked at, and a page that is opened with it shows the same", async () => {
    const address = save(usual);
    const first = await open(null, { address });
    await first.page.locator("select").nth(0).selectOption({ label: "log-1" });
    await first.page.locator("select").nth(2).selectOption({ label: "ladder" });
    await first.page.locator("select").nth(3).selectOption({ label: "teo" });
    await first.page.locator("#lambda").focus();
    await first.page.keyboard.press("End");
    const link = first.page.url();
    assert.match(link, /#log=log-1&machine=spr&governor=ladder&against=teo&lambda=4$/);
    assert.deepEqual(first.errors, []);
    await first.close();
    const second = await open(null, { address: link });
    const chosen = await second.page.locator("select").evaluateAll((lists) => lists.map((list) => list.selectedOptions[0].textContent));
    assert.deepEqual(chosen.filter((_, i) => i !== 1), ["log-1", "ladder", "teo"]);
    assert.match(plain(await second.page.locator("#lambda-value").textContent()), /λ=4/);
    assert.deepEqual(second.errors, []);
    await second.close();
    const other = await open(null, { address: `${address}#governor=%3Cimg%3E&lambda=nonsense&log=` });
    assert.deepEqual(other.errors, []);
    await other.close();
});

test("the theme's button overrides the system's theme", async () => {
    const { page, close } = await open(usual, { theme: "dark" });
    const paper = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const dark = await paper();
    await page.locator("button", { hasText: "light / dark" }).click();
    assert.notEqual(await paper(), dark);
    assert.equal(await paper(), "rgb(255, 255, 255)");
    await close();
});

test("printed, the page is light and leaves out what can't be pressed", async () => {
    const { page, close } = await open(usual, { theme: "dark" });
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor), "rgb(255, 255, 255)");
    assert.equal(await page.locator(".tools").first().isVisible(), false);
    await page.locator("#when").scrollIntoViewIfNeeded();
    await page.waitForFunction(() => document.querySelector(".timeline").dataset.to);
    const corner = () => page.locator(".timeline").evaluate((canvas) => [...canvas.getContext("2d").getImageData(0, 0, 1, 1).data].slice(0, 3).join());
    await page.emulateMedia({ media: "screen", colorScheme: "dark" });
    await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
    assert.equal(await corner(), "255,255,255");
    await page.evaluate(() => dispatchEvent(new Event("afterprint")));
    assert.notEqual(await corner(), "255,255,255");
    const { length } = await page.pdf({ format: "A4" });
    assert.ok(length > 20_000 && length < 3_000_000, `${length} bytes`);
    await close();
});

test("what a recording lacks is said where it would be", async () => {
    const { page, errors, close } = await open(made(facts({ logs: 1, knows: { timers: false, wakes: false, states: false } })));
    await lookAtAll(page);
    const when = await page.locator("#when").innerText();
    for (const what of [/Unknown: which states/, /Unknown: the next timers/, /Unknown: what ended/]) assert.match(when, what);
    assert.match(await page.locator("#wakes").innerText(), /Unknown: what ended the gaps of log-0/);
    await page.keyboard.press("w");
    await page.waitForSelector(".details h4");
    assert.match(await page.locator(".details").innerText(), /unknown: the recording has no timers/);
    assert.deepEqual(errors, []);
    await close();
});

test("a damaged column is said where it would be seen, and nothing else breaks", async () => {
    const { facts: all, columns } = facts({ logs: 1 });
    const damaged = made({ facts: all, columns }).replace(new RegExp(`data-id="${all.details[0].columns.gap.id}">[^<]*`), (tag) => `${tag.split(">")[0]}>AAAA`);
    const { page, close } = await open(damaged);
    await lookAtAll(page);
    assert.match(await page.locator("#when").innerText(), /Unknown: this part of the page cannot be read/);
    assert.ok((await page.locator(".tile").count()) > 0);
    assert.ok((await page.locator("#regret .mass").count()) > 10);
    await close();
});

for (const gaps of [0, 1]) {
    test(`a log of ${gaps} gaps makes a page without errors`, async () => {
        const { page, errors, close } = await open(made(facts({ gaps, logs: 1, cpus: 1 })));
        await lookAtAll(page);
        assert.ok((await page.locator("section").count()) >= 8);
        assert.doesNotMatch(await page.locator("main").innerText(), /NaN|undefined|Infinity/);
        assert.deepEqual(errors, []);
        await close();
    });
}

test("512 CPUs: the worst come first, the others on request, and each can be reached in the timeline", async () => {
    const { page, errors, close } = await open(made(facts({ gaps: 5120, logs: 1, cpus: 512 })));
    await lookAtAll(page);
    assert.equal(await page.locator(".tile").count(), 24);
    await page.locator("#cpus button", { hasText: "show the other 488 CPUs" }).click();
    await page.waitForFunction(() => document.querySelectorAll(".tile").length === 512);
    await page.locator(".tile button", { hasText: /^CPU 511$/ }).click();
    await page.waitForTimeout(300);
    const { top, height } = await page.locator(".lanes").evaluate((lanes) => ({ top: lanes.scrollTop, height: lanes.scrollHeight }));
    assert.ok(top > height / 2, `${top} of ${height}`);
    assert.deepEqual(errors, []);
    await close();
});

test("a page of figures draws each kind of chart, with its figures to copy", async () => {
    const { facts: all, columns } = facts({ gaps: 0 });
    const chart = (id, rest) => ({ id, title: `Chart ${id}${HOSTILE}`, about: "What it shows.", basis: "measured", command: all.command, ...rest });
    all.kind = "figures";
    all.charts = [
        chart("a", { kind: "tornado", unit: "%", base: 12, base_name: "as assumed", rows: [
            { name: "exit latency", low: 8, high: 19, low_name: "½×", high_name: "2×" }, { name: "a rather long name of something that is varied", low: 13, high: 11, low_name: "1 µs", high_name: "3 µs" }] }),
        chart("b", { kind: "quantiles", unit: "ns", is_log: true, series: [
            { name: "futex, no driver, another package", points: [{ quantile: 0, value: 900 }, { quantile: 0.5, value: 1200 }, { quantile: 0.99, value: 9000 }, { quantile: 1, value: 90_000 }] },
            { name: "mwait", points: [{ quantile: 0, value: 300 }, { quantile: 0.5, value: 400 }, { quantile: 0.99, value: 700 }] }] }),
        chart("c", { kind: "intervals", unit: "µs", is_log: false, about_interval: "95 %, from drawing the saved values again and again: how they vary within a run, and not from run to run", rows: [
            { name: "polling", group: "this machine", middle: 3, low: 2.5, high: 3.4 }, { name: "parked", group: "this machine", middle: 5, low: 4, high: 7 }, { name: "polling", group: "that one", middle: 4, low: 3.9, high: 4.2 }] }),
        chart("d", { kind: "lines", x: { name: "share", unit: "", is_log: false }, y: { name: "gain", unit: "%", is_log: false }, series: [
            { name: "redis", points: [{ x: 0, y: 1, low: 0.5, high: 1.5 }, { x: 1, y: 3, low: 2, high: 4 }] }, { name: "idle", points: [{ x: 0, y: 2 }, { x: 1, y: 2.5 }] }] }),
    ];
    const { page, errors, close } = await open(made({ facts: all, columns }));
    await lookAtAll(page);
    assert.equal(await page.locator("section svg.chart").count(), 4);
    for (const width of [390, 1300]) {
        await page.setViewportSize({ width, height: 800 });
        await page.waitForTimeout(200);
        const outside = await page.locator(".chart text").evaluateAll((all) => all.filter((text) => text.getBoundingClientRect().right > innerWidth).map((text) => text.textContent));
        assert.deepEqual(outside, [], String(width));
    }
    assert.equal(await page.locator(".command").count(), 1, "the page's command is shown once");
    for (const summary of await page.locator("summary").all()) await summary.click();
    assert.equal(await page.locator("section[id^=chart] table").count(), 4);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(errors, []);
    await close();
});
