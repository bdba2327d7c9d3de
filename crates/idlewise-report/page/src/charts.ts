// Charts of studies and of saved measurements: what the file describes, drawn like everything else.

import { SortedTable } from "./table";
import { command } from "./provenance";
import { drawQuantiles } from "./delays";
import { el, shown, svg } from "./dom";
import type { Chart, IntervalRow, Table, TornadoRow } from "./format";
import { axes, cut, drawing, line, linear, logarithmic, text, widthOf, type Plot } from "./plot";
import { section, type Section } from "./section";
import { significant } from "./units";

const ROW = 24;

/** The command is shown where it is not the page's. */
export function charts(all: Chart[], pageCommand: string): Section[] {
    return all.map((chart) => {
        const made = section(`chart-${chart.id}`, shown(chart.title), shown(chart.about));
        const figure = drawing(`${shown(chart.title)}. The table below has the figures.`, (root, width) => draw(chart, root, width));
        const table = figures(chart);
        const how = chart.kind === "intervals" && el("figcaption", { class: "caption" }, `Intervals: ${shown(chart.about_interval)}`);
        made.body.append(el("figure", {}, figure.node, how), el("details", {}, el("summary", {}, "figures"), table.node));
        if (chart.command && chart.command !== pageCommand) made.body.append(command(chart.command));
        if (chart.basis) made.basis(`Basis: ${chart.basis}.`);
        return made;
    });
}

/** The tables that the command prints. */
export function tables(all: Table[]): Section | null {
    if (all.length === 0) return null;
    const made = section("tables", "Tables", "As the command prints them. CSV has full precision.");
    for (const table of all) {
        const sorted = new SortedTable(table.title, table.columns, null).show(table.rows.map((cells) => ({ cells })));
        made.body.append(el("details", {}, el("summary", {}, shown(table.title)), sorted.node, ...table.notes.map((note) => el("p", { class: "how" }, shown(note)))));
    }
    return made;
}

function draw(chart: Chart, root: SVGSVGElement, width: number): number {
    switch (chart.kind) {
        case "tornado": return tornado(chart, root, width);
        case "intervals": return intervals(chart, root, width);
        case "quantiles": {
            const format = significantOf;
            return drawQuantiles(root, width, chart.series.map((series, i) => ({ ...series, className: `series-${i % 6}` })), { share: "share of all", value: `at most [${shown(chart.unit)}]` }, chart.is_log, format);
        }
        case "lines": return lines(chart, root, width);
    }
}

function withUnit(unit: string): (value: number) => string {
    return (value) => (unit ? `${significant(value)}\u202f${shown(unit)}` : significant(value));
}

function spanOf(values: number[]): [number, number] {
    const known = values.filter(Number.isFinite);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const margin = (high - low || Math.abs(high) || 1) * 0.05;
    return [low - margin, high + margin];
}

/** Room for the names at the left. */
function nameWidth(names: string[], width: number): number {
    return Math.min(width * 0.45, Math.max(40, ...names.map((name) => widthOf(shown(name)))) + 14);
}

function tornado(chart: Chart & { kind: "tornado" }, root: SVGSVGElement, width: number): number {
    const reach = (row: TornadoRow) => Math.abs(row.high - row.low);
    const rows = [...chart.rows].sort((a, b) => reach(b) - reach(a));
    const left = nameWidth(rows.map(({ name }) => name), width);
    const plot: Plot = { left, right: width - 60, top: 30, bottom: 34 + rows.length * ROW };
    const x = linear(...spanOf([chart.base, ...rows.flatMap(({ low, high }) => [low, high])]), [plot.left + 50, plot.right], width / 120);
    axes(root, plot, { scale: x, name: shown(chart.unit), format: significantOf }, null);
    root.append(line(x(chart.base), plot.top - 6, x(chart.base), plot.bottom, "zero"),
        text(x(chart.base), 14, `${shown(chart.base_name)}: ${withUnit(chart.unit)(chart.base)}`, "middle"));
    rows.forEach((row, i) => {
        const y = plot.top + i * ROW + ROW / 2;
        const [from, to] = [Math.min(row.low, row.high), Math.max(row.low, row.high)];
        const [fromName, toName] = row.low <= row.high ? [row.low_name, row.high_name] : [row.high_name, row.low_name];
        root.append(text(left - 10, y + 4, cut(row.name, left - 12), "end"),
            svg("rect", { class: "span", x: x(from), width: Math.max(1, x(to) - x(from)), y: y - 7, height: 14 },
                svg("title", {}, `${shown(row.name)}: ${shown(row.low_name)} ${significant(row.low)}, ${shown(row.high_name)} ${significant(row.high)}`)),
            text(x(from) - 4, y + 4, cut(fromName, 60), "end", "number"), text(x(to) + 4, y + 4, cut(toName, 60), "start", "number"));
    });
    return plot.bottom + 40;
}

const significantOf = (value: number) => significant(value);

function intervals(chart: Chart & { kind: "intervals" }, root: SVGSVGElement, width: number): number {
    const groups = new Map<string, IntervalRow[]>();
    for (const row of chart.rows) groups.set(row.group, [...(groups.get(row.group) ?? []), row]);
    const left = nameWidth(chart.rows.map(({ name }) => name), width);
    const count = chart.rows.length + [...groups.keys()].filter(Boolean).length;
    const plot: Plot = { left, right: width - 20, top: 12, bottom: 18 + count * ROW };
    const values = chart.rows.flatMap(({ middle, low, high }) => [middle, low, high]);
    const positive = values.filter((value) => value > 0);
    const x = chart.is_log && positive.length === values.length
        ? logarithmic(Math.min(...positive) / 1.2, Math.max(...positive) * 1.2, [left + 6, plot.right])
        : linear(...spanOf(values), [left + 6, plot.right], width / 120);
    axes(root, plot, { scale: x, name: shown(chart.unit), format: significantOf }, null);
    let y = plot.top;
    for (const [group, rows] of groups) {
        if (group) {
            root.append(text(0, y + ROW / 2 + 4, shown(group), "start", "group"));
            y += ROW;
        }
        for (const row of rows) {
            const at = y + ROW / 2;
            root.append(line(left, at, plot.right, at, "grid"), text(left - 10, at + 4, cut(row.name, left - 12), "end"),
                line(x(row.low), at, x(row.high), at, "interval"), svg("circle", { class: "middle", cx: x(row.middle), cy: at, r: 4 },
                    svg("title", {}, `${shown(row.name)}: ${significant(row.middle)} (${significant(row.low)} to ${significant(row.high)}) ${shown(chart.unit)}`)));
            y += ROW;
        }
    }
    return plot.bottom + 40;
}

function lines(chart: Chart & { kind: "lines" }, root: SVGSVGElement, width: number): number {
    const height = 320;
    const plot: Plot = { left: 62, right: Math.max(160, width - 130), top: 28, bottom: height - 44 };
    const points = chart.series.flatMap(({ points }) => points);
    const scale = (axis: { is_log: boolean }, values: number[], range: [number, number]) => {
        const positive = values.filter((value) => value > 0);
        return axis.is_log && positive.length ? logarithmic(Math.min(...positive), Math.max(...positive), range) : linear(...spanOf(values), range);
    };
    const x = scale(chart.x, points.map((point) => point.x), [plot.left, plot.right]);
    const y = scale(chart.y, points.flatMap((point) => [point.y, point.low ?? point.y, point.high ?? point.y]), [plot.bottom, plot.top]);
    const named = (axis: { name: string; unit: string }) => shown(axis.unit ? `${axis.name} [${axis.unit}]` : axis.name);
    axes(root, plot, { scale: x, name: named(chart.x), format: significantOf }, { scale: y, name: named(chart.y), format: significantOf });
    let free = -Infinity;
    const ends = chart.series.map((series, i) => ({ series, i, at: y(series.points.at(-1)?.y ?? 0) })).sort((a, b) => a.at - b.at);
    for (const { series, i, at } of ends) {
        if (series.points.length === 0) continue;
        const path = (of: (point: (typeof points)[number]) => number) => series.points.map((point) => `${x(point.x).toFixed(1)} ${y(of(point)).toFixed(1)}`);
        if (series.points.every(({ low, high }) => low !== undefined && high !== undefined)) {
            root.append(svg("path", { class: `ribbon series-${i % 6}`, d: `M${path((p) => p.high!).join("L")}L${path((p) => p.low!).reverse().join("L")}Z` }));
        }
        root.append(svg("path", { class: `line series-${i % 6}`, d: `M${path((point) => point.y).join("L")}` }, svg("title", {}, shown(series.name))));
        free = Math.max(at + 4, free + 14);
        root.append(text(plot.right + 8, free, cut(series.name, 118), "start", `line-name series-${i % 6}`));
    }
    return height;
}

/** A chart's figures, to copy. */
function figures(chart: Chart): SortedTable {
    const column = (name: string, unit = "", is_text = false) => ({ name, unit, about: "", better: null, is_text });
    const name = column("name", "", true);
    const words = (text: string) => ({ text, value: text });
    const number = (value: number) => ({ text: significant(value, 4), value });
    switch (chart.kind) {
        case "tornado":
            return new SortedTable(chart.title, [name, column("low", chart.unit), column("at", "", true), column("high", chart.unit), column("at", "", true)], null)
                .show(chart.rows.map((row) => ({ cells: [words(row.name), number(row.low), words(row.low_name), number(row.high), words(row.high_name)] })));
        case "intervals":
            return new SortedTable(chart.title, [name, column("group", "", true), column("middle", chart.unit), column("low", chart.unit), column("high", chart.unit)], null)
                .show(chart.rows.map((row) => ({ cells: [words(row.name), words(row.group), number(row.middle), number(row.low), number(row.high)] })));
        case "quantiles":
            return new SortedTable(chart.title, [name, column("quantile"), column("value", chart.unit)], null)
                .show(chart.series.flatMap((series) => series.points.map((point) => ({ cells: [words(series.name), number(point.quantile), number(point.value)] }))));
        case "lines":
            return new SortedTable(chart.title, [name, column(chart.x.name, chart.x.unit), column(chart.y.name, chart.y.unit)], null)
                .show(chart.series.flatMap((series) => series.points.map((point) => ({ cells: [words(series.name), number(point.x), number(point.y)] }))));
    }
}
