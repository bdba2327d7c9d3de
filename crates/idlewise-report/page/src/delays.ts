// How long wake-ups waited: quantiles on an axis of nines, because the tail is what one asks about.

import { el, shown, svg } from "./dom";
import type { Result } from "./format";
import { axes, cut, drawing, Labels, linear, logarithmic, text, widthOf, type Plot, type Scale } from "./plot";
import { section, type Section } from "./section";
import { percent, time } from "./units";
import type { Model } from "./view";

const NINES = [0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];
/** Where a quantile is: each further nine takes as much room. */
const place = (quantile: number) => -Math.log10(Math.max(1e-7, 1 - quantile));

export interface Series {
    name: string;
    points: { quantile: number; value: number }[];
    className: string;
}

export function delays(model: Model): Section {
    const made = section("delays", "How long wake-ups waited",
        "Read it as: this share of all wake-ups waited no longer than this. Each step to the right is one more nine.");
    const chart = drawing("Quantiles of wake-up delays by governor.", (root, width) =>
        drawQuantiles(root, width, model.results().filter(isShown).map(series), { share: "share of wake-ups", value: "waited at most" }, true, time, model.results()[0]?.gap_count));
    const isShown = (result: Result) => result.delays.length > 1;
    const series = (result: Result): Series => ({
        name: model.governor(result.governor).name,
        points: result.delays.map(({ quantile, ns }) => ({ quantile, value: ns })),
        className: result.governor === model.view.governor ? "chosen" : result.governor === model.view.against ? "against"
            : model.governor(result.governor).role === "bound" ? "bound" : "",
    });
    const caption = el("p", { class: "caption" });
    made.body.append(el("figure", {}, chart.node, caption));
    const show = () => {
        const { log, machine } = model.view;
        caption.textContent = shown(`${model.logName(log)} on ${model.facts.machines[machine].title}. A wake-up waits for the exit latency of the state it finds, which a table gives as the worst case, or for the rest of a tick.`);
        chart.redraw();
        made.basis("Simulated, from the exit latencies in the machine’s table.");
    };
    model.subscribe(show);
    show();
    return made;
}

export function drawQuantiles(root: SVGSVGElement, width: number, all: Series[], names: { share: string; value: string }, isLog: boolean, format: (value: number) => string, count = Infinity): number {
    const height = 300;
    const margin = Math.min(width * 0.32, Math.max(100, ...all.map(({ name }) => widthOf(shown(name)) + 10)));
    const plot: Plot = { left: 62, right: width - margin, top: 28, bottom: height - 44 };
    const values = all.flatMap(({ points }) => points.map(({ value }) => value)).filter((value) => value > 0);
    if (all.length === 0) {
        root.append(text(plot.left, 20, "There were no wake-ups."));
        return 40;
    }
    // Of a hundred wake-ups, nobody knows the thousandth part.
    const last = Math.min(Math.max(1, Math.log10(count)), Math.max(1, ...all.flatMap(({ points }) => points.map(({ quantile }) => (quantile < 1 ? place(quantile) : 0)))));
    const x = linear(0, last, [plot.left, plot.right]);
    // From the tail's end, as far as there is room.
    let free = Infinity;
    x.ticks = NINES.map(place).reverse().filter((tick) => tick <= last + 0.01 && x(tick) < free - 54 && ((free = x(tick)), true));
    const [low, high] = [Math.min(...values, Infinity), Math.max(...values, 1e-9)];
    const y: Scale = isLog && Number.isFinite(low)
        ? logarithmic(low / 1.6, high * 1.3, [plot.bottom, plot.top])
        : linear(0, high * 1.05, [plot.bottom, plot.top]);
    const nines = (tick: number) => `${Number(((1 - 10 ** -tick) * 100).toPrecision(7))}\u202f%`;
    axes(root, plot, { scale: x, name: names.share, format: nines }, { scale: y, name: names.value, format });
    const labels = new Labels(plot);
    const ends: { at: number; node: SVGElement }[] = [];
    const beside: SVGElement[] = [];
    const steep: { x: number; top: number; bottom: number; series: Series }[] = [];
    const nameAtEnd = ({ name, points, className }: Series) =>
        ends.push({ at: y(points[points.length - 1].value), node: text(plot.right + 8, 0, cut(name, margin - 8), "start", `line-name ${className}`) });
    for (const series of [...all].sort((a, b) => Number(a.className === "chosen") - Number(b.className === "chosen"))) {
        const { name, points, className } = series;
        const path = points.map(({ quantile, value }, i) => {
            const at = `${x(Math.min(place(quantile), last)).toFixed(1)} ${y(value).toFixed(1)}`;
            return i === 0 ? `M${at}` : `H${at.split(" ")[0]}V${at.split(" ")[1]}`;
        }).join("");
        const p99 = points.find(({ quantile }) => quantile >= 0.99);
        root.append(svg("path", { class: `line ${className}`, d: path }, svg("title", {}, `${shown(name)}${p99 ? `: ${percent(0.99)} at most ${format(p99.value)}` : ""}`)));
        // A name stands at the steepest rise of its line; a line that climbs slowly has it at its end.
        const rises = points.slice(1).map(({ value, quantile }, i) => ({ top: y(value), bottom: y(points[i].value), quantile: Math.max(quantile, points[i + 1].quantile) }));
        const steepest = rises.filter(({ quantile }) => place(quantile) <= last).sort((a, b) => b.bottom - b.top - a.bottom + a.top)[0];
        if (steepest && steepest.bottom - steepest.top > 40) steep.push({ ...steepest, x: x(place(steepest.quantile)), series });
        else nameAtEnd(series);
    }
    // From the left, each beside its line and none over another.
    for (const { x, top, bottom, series } of steep.sort((a, b) => a.x - b.x)) {
        const label = labels.beside(x, top + 12, bottom - 6, shown(series.name), `line-name ${series.className}`);
        if (label) beside.push(label);
        else nameAtEnd(series);
    }
    root.append(...beside);
    // Names beside the ends of their lines, apart from each other.
    ends.sort((a, b) => a.at - b.at);
    free = -Infinity;
    const spread = ends.map(({ at, node }) => ({ node, at: (free = Math.max(at + 4, free + 14)) }));
    const over = Math.max(0, free - (plot.bottom + 8));
    for (const { node, at } of spread) {
        node.setAttribute("y", String(at - over));
        root.append(node);
    }
    return height;
}
