// Where the regret is: by gap length, how many gaps there are and how much regret, by what was chosen and what
// would have been right; of one governor, or the difference of two.

import { Costs } from "./cost";
import { decodeJson } from "./data";
import { el, scrolled, shown, svg } from "./dom";
import type { RegretCell } from "./format";
import { priceName } from "./front";
import { axes, drawing, line, linear, logarithmic, text, type Plot, type Scale } from "./plot";
import { later, section, unknown, type Section } from "./section";
import { count, energy, percent, signed, time } from "./units";
import type { Model } from "./view";

/** Against the right state: the same, shallower or deeper. */
const KINDS = ["same", "shallow", "deep"] as const;
type Kind = (typeof KINDS)[number];
const NAMES: Record<Kind, string> = {
    same: "■ first choice right",
    shallow: "▲ shallower than right",
    deep: "▼ deeper than right",
};

function kindOf([, chosen, right]: RegretCell): Kind {
    return chosen === right ? "same" : chosen < right ? "shallow" : "deep";
}

interface Sums {
    count: number;
    regret: number;
}

export function histogram(model: Model): Section {
    const made = section("regret", "Where the regret is",
        "Gaps by their length. The bands are the states that would have cost least. A gap’s regret is its cost above that; "
        + "where the first choice was right, it comes from ticks and later choices.");
    const legend = el("ul", { class: "legend" });
    const caption = el("p", { class: "caption" });
    let cells: RegretCell[] = [];
    const chart = drawing("Histogram of gap lengths: number of gaps and regret. The table below has the sums.",
        (root, width) => draw(model, cells, root, width));
    const matrix = el("table", { class: "matrix" });
    const body = el("div", { class: "pair" }, el("figure", {}, caption, legend, chart.node), scrolled("Chosen and right states", matrix));

    const cellsOf = async (governor: number) => {
        const { log, machine } = model.view;
        const found = model.facts.regret.find((regret) => regret.log === log && regret.machine === machine
            && regret.governor === governor && regret.price === model.price);
        return found ? decodeJson<RegretCell[]>(found.cells) : null;
    };
    let asked = 0;
    const show = later(made, async () => {
        const mine = ++asked;
        const { governor, against } = model.view;
        const own = await cellsOf(governor);
        const other = against === null ? null : await cellsOf(against);
        if (mine !== asked) return;
        if (!own) {
            made.body.replaceChildren(unknown("the page holds no histogram for this governor."));
            return;
        }
        made.body.replaceChildren(body);
        const taken = (other ?? []).map(([bin, chosen, right, count, regret]): RegretCell => [bin, chosen, right, -count, -regret]);
        cells = [...own, ...taken];
        const names = shown(model.governor(governor).name) + (other ? ` minus ${shown(model.governor(against!).name)}` : "");
        caption.textContent = `${names}, ${shown(model.logName(model.view.log))}, regret at ${priceName(model)}`;
        legend.replaceChildren(...legendItems(cells, other !== null));
        matrix.replaceChildren(...chosenAndRight(model, cells, other !== null));
        chart.redraw();
    });
    model.subscribe(show);
    return made;
}

function sums(cells: RegretCell[], kind?: Kind): Sums {
    const of = kind ? cells.filter((cell) => kindOf(cell) === kind) : cells;
    return { count: of.reduce((sum, cell) => sum + cell[3], 0), regret: of.reduce((sum, cell) => sum + cell[4], 0) };
}

function legendItems(cells: RegretCell[], isDifference: boolean): HTMLElement[] {
    const all = sums(cells);
    return KINDS.map((kind) => {
        const { count: gaps, regret } = sums(cells, kind);
        const figures = isDifference
            ? `${signed(count(gaps), gaps)} gaps, ${signed(energy(regret), regret)}`
            : `${percent(gaps / all.count)} of gaps, ${percent(regret / all.regret)} of regret (${energy(regret)})`;
        return el("li", { class: kind }, el("strong", {}, NAMES[kind]), ` ${figures}`);
    });
}

function draw(model: Model, cells: RegretCell[], root: SVGSVGElement, width: number): number {
    const edges = model.facts.edges_ns;
    const [countHeight, regretHeight, gap] = [130, 190, 34];
    const height = 40 + countHeight + gap + regretHeight + 46;
    const plot: Plot = { left: 58, right: width - 8, top: 40, bottom: height - 46 };
    // Of a difference, what is left of it.
    const used = [...stacked(cells, 3), ...stacked(cells, 4)].map(({ bin }) => bin);
    if (used.length === 0) {
        root.append(text(plot.left, 20, "There are no gaps."));
        return 40;
    }
    const [first, last] = [Math.max(0, Math.min(...used) - 2), Math.min(edges.length - 2, Math.max(...used) + 2)];
    const x = logarithmic(Math.max(edges[first], 1), edges[last + 1], [plot.left, plot.right]);
    const counts: Plot = { ...plot, bottom: plot.top + countHeight };
    const regrets: Plot = { ...plot, top: counts.bottom + gap };

    bands(model, x, plot, root);
    for (const [panel, value, name, format] of [
        [counts, 3, "gaps", count] as const,
        [regrets, 4, "regret", energy] as const,
    ]) {
        const bins = stacked(cells, value);
        const y = linear(Math.min(0, ...bins.map(({ low }) => low)), Math.max(1e-9, ...bins.map(({ high }) => high)),
            [panel.bottom, panel.top], 5);
        axes(root, panel, value === 4 ? { scale: x, name: "gap length", format: time } : null, { scale: y, name, format });
        for (const { bin, from, to, kind } of bins) {
            const [left, right] = [x(Math.max(edges[bin], 1)), x(edges[bin + 1] ?? edges[bin] * 2)];
            const [top, bottom] = [Math.min(y(from), y(to)), Math.max(y(from), y(to))];
            root.append(svg("rect", {
                class: `mass ${kind}${bottom - top < 2.5 ? " thin" : ""}`, x: left + 0.5, width: Math.max(0.8, right - left - 1), y: top, height: Math.max(0.5, bottom - top),
            }, svg("title", {}, `${time(edges[bin])} to ${time(edges[bin + 1])}, ${NAMES[kind]}: ${format(to - from)}`)));
        }
        root.append(line(plot.left, y(0), plot.right, y(0), "zero"));
    }
    return height;
}

/** Bars of each bin: what is added upwards from zero, what is taken away downwards. */
function stacked(cells: RegretCell[], value: 3 | 4) {
    const bins = new Map<number, Record<Kind, number>>();
    for (const cell of cells) {
        const bin = bins.get(cell[0]) ?? { same: 0, shallow: 0, deep: 0 };
        bin[kindOf(cell)] += cell[value];
        bins.set(cell[0], bin);
    }
    return [...bins].flatMap(([bin, masses]) => {
        let [high, low] = [0, 0];
        const bars = KINDS.filter((kind) => masses[kind] !== 0).map((kind) => {
            const from = masses[kind] > 0 ? high : low;
            const to = from + masses[kind];
            [high, low] = [Math.max(high, to), Math.min(low, to)];
            return { bin, kind, from, to };
        });
        return bars.map((bar) => ({ ...bar, high, low }));
    });
}

/** The right state of each gap length, as bands with names. */
function bands(model: Model, x: Scale, plot: Plot, root: SVGSVGElement): void {
    const costs = new Costs(model.machine);
    const { prices } = model.facts;
    const price = prices[model.price];
    const lambda = price ? price.price_mw ?? (price.share ?? 0) * model.machine.full_price_mw : 0;
    let start = plot.left;
    let state = costs.right(x.invert(start), NaN, lambda);
    for (let at = plot.left; at <= plot.right; at++) {
        const now = costs.right(x.invert(at), NaN, lambda);
        if (now === state && at < plot.right) continue;
        const name = shown(model.machine.states[state].name);
        if (at - start > name.length * 7) root.append(text((start + at) / 2, 14, name, "middle", "band-name"));
        if (at < plot.right) root.append(line(at, 4, at, plot.bottom, "band"));
        [start, state] = [at, now];
    }
}

/** How often each state was chosen where each state was right, and the regret of that. */
function chosenAndRight(model: Model, cells: RegretCell[], isDifference: boolean): HTMLElement[] {
    const { states } = model.machine;
    const grid = states.map(() => states.map((): Sums => ({ count: 0, regret: 0 })));
    for (const [, chosen, right, count, regret] of cells) {
        const sum = grid[chosen]?.[right];
        if (sum) [sum.count, sum.regret] = [sum.count + count, sum.regret + regret];
    }
    const most = Math.max(1e-12, ...grid.flat().map(({ regret }) => Math.abs(regret)));
    const used = states.map((_, i) => i).filter((i) => grid[i].some(({ count }) => count) || grid.some((row) => row[i].count));
    const total = sums(cells).regret;
    return [
        el("caption", {}, isDifference ? "Difference in gaps, and in regret" : "Gaps, and their share of the regret"),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "chosen ╲ right"),
            ...used.map((right) => el("th", { scope: "col", class: "number" }, shown(states[right].name))))),
        el("tbody", {}, ...used.map((chosen) => el("tr", {}, el("th", { scope: "row" }, shown(states[chosen].name)),
            ...used.map((right) => {
                const { count: gaps, regret } = grid[chosen][right];
                const kind = kindOf([0, chosen, right, 0, 0]);
                const cell = el("td", { class: `number ${kind}` }, gaps === 0 ? "·" : isDifference ? signed(count(gaps), gaps) : count(gaps),
                    gaps !== 0 && el("span", { class: "share" }, isDifference ? signed(energy(regret), regret) : percent(regret / total)));
                cell.style.setProperty("--mass", `${Math.round((Math.abs(regret) / most) * 34)}%`);
                return cell;
            }))))];
}
