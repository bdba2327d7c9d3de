// The page of `idlewise report`. Each section has a file; this one puts them in order.
//
// | file | holds |
// | --- | --- |
// | format.ts | what the file contains: the contract with the Rust side |
// | data.ts | columns, decoded when needed |
// | view.ts | what is looked at: log, machine, governors, the price of delay |
// | cost.ts | the cost of a gap |
// | dom.ts, units.ts, plot.ts, table.ts, section.ts, copy.ts | elements, numbers, charts, tables, frames, copying |
// | bar.ts, keys.ts, theme.ts, link.ts | choosing, shortcuts, colours, the address |
// | timeline.ts, timeline-view.ts, lanes.ts, course.ts, gap.ts | the timeline: its data, its canvas, its pixels, sums over gaps, one gap |
// | verdict.ts … provenance.ts | the sections, in the order below |

import { bar } from "./bar";
import { charts, tables } from "./charts";
import { cpus } from "./cpus";
import { delays } from "./delays";
import { el, shown } from "./dom";
import type { Facts } from "./format";
import { front, governors } from "./front";
import { histogram } from "./histogram";
import { help } from "./keys";
import { followLink } from "./link";
import { provenance } from "./provenance";
import type { Section } from "./section";
import { themeButton } from "./theme";
import { timeline } from "./timeline";
import { numbers, verdict } from "./verdict";
import { count, time } from "./units";
import { Model } from "./view";
import { promotions, wakes } from "./wakes";

/** What stands above the links to the sections, and the rows of sections below them. */
interface Made {
    model: Model | null;
    fold: Section[];
    rows: Section[][];
}

function sections(facts: Facts): Made {
    const listed = (...all: (Section | null)[]) => all.filter((section) => section !== null);
    const drawn = charts(facts.charts, facts.command).map((chart) => [chart]);
    const end = (...more: (Section | null)[]) => [...drawn, listed(...more, tables(facts.tables), provenance(facts))];
    if (facts.kind === "figures") return { model: null, fold: [], rows: end() };
    if (facts.machines.length === 0 || facts.logs.length === 0) return { model: null, fold: [], rows: [[verdict(facts, null)], ...end()] };
    const model = new Model(facts);
    followLink(model);
    const when = timeline(model);
    return {
        model,
        fold: [front(model), verdict(facts, model)],
        rows: [[governors(model)], [histogram(model)], [when.section], [cpus(model, when.show)],
            listed(wakes(model), delays(model)), ...end(promotions(model))],
    };
}

/** The workload and its machine, or that it was replayed on another one. */
function title(model: Model): string {
    const { id, title } = model.machine;
    return `${model.logName(model.view.log)}${model.logs.every(({ machine }) => machine === id) ? "" : ", replayed"} on ${title || id}`;
}

function subtitle({ logs, machine: { id } }: Model): string {
    const sum = (key: "gap_count" | "idle_ns") => logs.reduce((sum, log) => sum + log[key], 0);
    const names = logs.length > 1 && logs.length < 5 ? `${logs.map(({ name }) => name).join(", ")}: ` : "";
    const shared = (key: "machine" | "governor" | "kernel") => (logs.every((log) => log[key] === logs[0][key]) ? logs[0][key] : null);
    const machine = shared("machine");
    // The title names the machine that is shown.
    const where = [["on", machine === id ? null : machine], ["under", shared("governor")], ["by Linux", shared("kernel")]].flatMap(([word, name]) => (name ? `${word} ${name}` : []));
    return `${names}${count(sum("gap_count"))} idle periods (gaps), ${time(sum("idle_ns"))} idle${where.length ? `; recorded ${where.join(" ")}` : ""}`;
}

function start(): void {
    const facts = JSON.parse(document.getElementById("facts")!.textContent!) as Facts;
    const { model, fold, rows } = sections(facts);
    const keys = help();
    const links = [...fold, ...rows.flat()].map(({ id, title }) => el("a", { href: `#${id}` }, title));
    const heading = el("h1", {}, shown(facts.title));
    const about = el("p", { class: "subtitle" });
    const show = () => {
        heading.textContent = shown(title(model!));
        about.textContent = shown(subtitle(model!));
    };
    model?.subscribe(show);
    if (model) show();
    document.getElementById("page")!.replaceChildren(
        el("header", {}, heading, about),
        ...(model ? [el("div", { class: "fold" }, numbers(model), ...fold.map(({ node }) => node))] : []),
        el("nav", { "aria-label": "Sections" }, ...links, el("span", { class: "buttons" }, keys.open, themeButton())),
        ...(model ? [bar(model)] : []),
        ...rows.map((row) => (row.length === 1 ? row[0].node : el("div", { class: "columns" }, ...row.map(({ node }) => node)))),
        el("footer", {}, shown(facts.program)),
        keys.node);
    document.documentElement.classList.add("ready");
}

start();
