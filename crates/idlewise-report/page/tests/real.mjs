// The page of the real command: `IDLEWISE` is its path.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { lookAtAll, open } from "./browser.mjs";

const binary = process.env.IDLEWISE;
const traces = fileURLToPath(new URL("../../../../traces/", import.meta.url));

function report(...args) {
    const folder = mkdtempSync(join(tmpdir(), "idlewise-report-"));
    try {
        const path = join(folder, "report.html");
        execFileSync(binary, ["report", ...args, "-o", path], { stdio: ["ignore", "ignore", "pipe"] });
        return readFileSync(path, "utf8");
    } finally {
        rmSync(folder, { recursive: true, force: true });
    }
}

const options = { skip: binary ? false : "IDLEWISE is not set to the command's path" };

test("the bundled logs' page works, and its gaps add up to the results of each governor", options, async () => {
    const { page, errors, requests, close } = await open(report());
    await lookAtAll(page);
    const facts = await page.evaluate(() => JSON.parse(document.getElementById("facts").textContent));
    const [logs, machines, governors] = await Promise.all([0, 1, 2].map((i) => page.locator("select").nth(i)));
    let checked = 0;
    for (const course of facts.courses) {
        await logs.selectOption(String(course.log));
        await machines.selectOption(String(course.machine));
        await governors.selectOption(String(course.governor));
        const result = facts.results.find((result) => ["log", "machine", "governor"].every((key) => result[key] === course[key]));
        await page.waitForFunction(({ energy_uj, delay_ns }) => {
            const { dataset } = document.querySelector("#when [data-energy]") ?? { dataset: {} };
            return Math.abs(Number(dataset.energy) / energy_uj - 1) < 1e-9 && Math.abs(Number(dataset.delay) - delay_ns) < 1;
        }, result, { timeout: 10_000 }).catch(() => assert.fail(`${JSON.stringify(course)}: the gaps do not add up to ${result.energy_uj} µJ and ${result.delay_ns} ns`));
        assert.equal(await page.locator("#when [data-energy]").getAttribute("data-agrees"), "true");
        checked++;
    }
    assert.ok(checked >= 8);
    assert.doesNotMatch(await page.locator("main").innerText(), /NaN|undefined|please report/);
    assert.deepEqual(errors, []);
    assert.deepEqual(requests, []);
    await close();
});

test("a recording's page works: trace.dat, one governor, one machine", options, async () => {
    const { page, errors, close } = await open(report(join(traces, "k-pingpong-v7.parquet"), "--governor", "teo", "--machine", "spr"));
    await lookAtAll(page);
    await page.keyboard.press("n");
    await page.waitForSelector(".details h4");
    assert.doesNotMatch(await page.locator("main").innerText(), /NaN|undefined|please report/);
    assert.deepEqual(errors, []);
    await close();
});

/** A page of figures: every chart is drawn, and nothing on it is missing. */
async function looksWhole(html) {
    const { page, errors, requests, close } = await open(html);
    await lookAtAll(page);
    const facts = await page.evaluate(() => JSON.parse(document.getElementById("facts").textContent));
    assert.ok(facts.charts.length > 0);
    for (const chart of facts.charts) assert.equal(await page.locator(`[id="chart-${chart.id}"] svg`).count() > 0, true, chart.id);
    assert.doesNotMatch(await page.locator("main").innerText(), /NaN|undefined|please report/);
    assert.deepEqual(errors, []);
    assert.deepEqual(requests, []);
    await close();
}

test("pages of saved measurements work", options, async () => {
    const saved = (name) => fileURLToPath(new URL(`../../../idlewise-cli/tests/saved/${name}.json`, import.meta.url));
    await looksWhole(report(saved("halt"), saved("mwait")));
    await looksWhole(report(fileURLToPath(new URL("../../../../docs/park/measured.json", import.meta.url))));
});

test("a study's page works", options, async () => {
    const folder = mkdtempSync(join(tmpdir(), "idlewise-report-"));
    const path = join(folder, "study.html");
    try {
        execFileSync(binary, ["study", "amd-mwait", "--report", path], { stdio: ["ignore", "ignore", "pipe"] });
        await looksWhole(readFileSync(path, "utf8"));
    } finally {
        rmSync(folder, { recursive: true, force: true });
    }
});
