// CPU by CPU: small multiples on one scale, the CPUs with the most regret first.

import { decodeJson } from "./data";
import { button, el, shown, svg } from "./dom";
import type { CpuRow } from "./format";
import { priceName } from "./front";
import { line, text } from "./plot";
import { later, section, unknown, type Section } from "./section";
import { count, percent, time } from "./units";
import type { Model } from "./view";

const FIRST = 24;

export function cpus(model: Model, show: (log: number, cpu: number) => void): Section {
    const made = section("cpus", "CPU by CPU",
        "Regret of each governor as a share of the oracle’s cost, on one scale for all CPUs. The CPUs with the most regret come first.");
    let shownCount = FIRST;
    const draw = later(made, async () => {
        const rows = model.facts.cpus ? await decodeJson<CpuRow[]>(model.facts.cpus) : [];
        const { log, machine, governor, against } = model.view;
        const price = model.price;
        const groups = new Map<string, CpuRow[]>();
        for (const row of rows) {
            if (row.machine !== machine || (log !== null && row.log !== log)) continue;
            if (model.governor(row.governor).role === "oracle") continue;
            const key = `${row.log} ${row.cpu}`;
            groups.set(key, [...(groups.get(key) ?? []), row]);
        }
        if (groups.size === 0) {
            made.body.replaceChildren(unknown("the page holds no figures by CPU."));
            return;
        }
        const regret = (row: CpuRow | undefined) => row?.regret_share[price] ?? 0;
        const own = (group: CpuRow[]) => regret(group.find((row) => row.governor === governor));
        // By regret in energy, which is share × cost; idle time stands for the cost.
        const sorted = [...groups.values()].sort((a, b) => own(b) * b[0].idle_ns - own(a) * a[0].idle_ns);
        const isProper = (row: CpuRow) => model.governor(row.governor).role !== "bound" || row.governor === governor || row.governor === against;
        const most = Math.max(0.01, ...sorted.flatMap((group) => group.filter(isProper).map(regret)));
        const tiles = sorted.slice(0, shownCount).map((group) => tile(group.filter(isProper), most));
        const rest = sorted.length - shownCount;
        made.body.replaceChildren(
            el("p", { class: "caption" }, `${shown(model.governor(governor).name)} is marked${against === null ? "" : `, ${shown(model.governor(against).name)} is a ring`}. Regret at ${priceName(model)}; the scale ends at ${percent(most)}.${rest > 0 ? ` ${count(tiles.length)} of ${count(sorted.length)} CPUs.` : ""}`),
            el("div", { class: "tiles" }, ...tiles),
            ...(rest > 0 ? [button(`show the other ${count(rest)} CPUs`, () => {
                shownCount = Infinity;
                draw();
            })] : []));
    });

    function tile(group: CpuRow[], most: number): HTMLElement {
        const { log, cpu, gap_count, idle_ns } = group[0];
        const several = model.facts.logs.length > 1 && model.view.log === null;
        const [width, height] = [220, 34];
        const x = (share: number) => 6 + (Math.max(0, Math.min(share, most)) / most) * (width - 12);
        const root = svg("svg", { class: "strip", viewBox: `0 0 ${width} ${height}`, role: "img",
            "aria-label": group.map((row) => `${shown(model.governor(row.governor).name)} ${percent(row.regret_share[model.price] ?? NaN)}`).join(", ") });
        root.append(line(6, 22, width - 6, 22, "grid"));
        const order = (row: CpuRow) => (row.governor === model.view.governor ? 2 : row.governor === model.view.against ? 1 : 0);
        for (const row of [...group].sort((a, b) => order(a) - order(b))) {
            const share = row.regret_share[model.price];
            if (share === null) continue;
            const className = ["governor", "governor against", "governor chosen"][order(row)];
            root.append(svg("g", { class: className }, svg("circle", { cx: x(share), cy: 22, r: order(row) ? 5 : 3.5 }),
                svg("title", {}, `${shown(model.governor(row.governor).name)}: ${percent(share)}`)));
            if (order(row) === 2) root.append(text(Math.min(Math.max(x(share), 20), width - 24), 11, percent(share), "middle", "strip-number"));
        }
        const name = `CPU ${cpu}${several ? `, ${shown(model.facts.logs[log].name)}` : ""}`;
        const figures = [...group].sort((a, b) => (a.regret_share[model.price] ?? 0) - (b.regret_share[model.price] ?? 0))
            .map((row) => `${shown(model.governor(row.governor).name)}\u00a0${percent(row.regret_share[model.price] ?? NaN)}`);
        return el("div", { class: "tile" }, button(name, () => show(log, cpu), { title: "show it in the timeline" }),
            el("div", { class: "meaning" }, `${count(gap_count)} gaps, ${time(idle_ns)} idle`), root, el("div", { class: "meaning" }, figures.join(", ")));
    }
    model.subscribe(draw);
    return made;
}
