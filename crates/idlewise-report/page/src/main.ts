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
import { front } from "./front";
import { histogram } from "./histogram";
import { help } from "./keys";
import { followLink } from "./link";
import { provenance } from "./provenance";
import type { Section } from "./section";
import { themeButton } from "./theme";
import { timeline } from "./timeline";
import { verdict } from "./verdict";
import { count, time } from "./units";
import { Model } from "./view";
import { promotions, wakes } from "./wakes";

function sections(facts: Facts): { bar: HTMLElement | null; sections: Section[] } {
    const listed = (...all: (Section | null)[]) => all.filter((section) => section !== null);
    if (facts.kind === "figures") return { bar: null, sections: listed(...charts(facts.charts), tables(facts.tables), provenance(facts)) };
    if (facts.machines.length === 0 || facts.logs.length === 0) return { bar: null, sections: listed(verdict(facts), tables(facts.tables), provenance(facts)) };
    const model = new Model(facts);
    followLink(model);
    const when = timeline(model);
    return {
        bar: bar(model),
        sections: listed(verdict(facts), front(model), histogram(model), when.section, cpus(model, when.show), wakes(model), delays(model),
            promotions(model), ...charts(facts.charts), tables(facts.tables), provenance(facts)),
    };
}

function subtitle({ kind, logs }: Facts): string {
    if (kind === "figures") return "";
    const sum = (key: "gap_count" | "idle_ns") => logs.reduce((sum, log) => sum + log[key], 0);
    const names = logs.length > 4 ? `${logs.length} recordings` : logs.map(({ name }) => name).join(", ");
    return `${names}: ${count(sum("gap_count"))} idle periods (gaps), ${time(sum("idle_ns"))} idle`;
}

function start(): void {
    const facts = JSON.parse(document.getElementById("facts")!.textContent!) as Facts;
    const made = sections(facts);
    const keys = help();
    const links = made.sections.map(({ id, title }) => el("a", { href: `#${id}` }, title));
    const main = document.getElementById("page")!;
    main.replaceChildren(
        el("header", {},
            el("h1", {}, shown(facts.title)),
            el("p", { class: "subtitle" }, shown(subtitle(facts))),
            el("nav", { "aria-label": "Sections" }, ...links, el("span", { class: "buttons" }, keys.open, themeButton()))),
        ...(made.bar ? [made.bar] : []),
        ...made.sections.map(({ node }) => node),
        el("footer", {}, shown(facts.program)),
        keys.node);
    document.documentElement.classList.add("ready");
}

start();
