// Energy against delay: governors as points, the oracle's front as a line, and lines of equal cost at the view's
// price. The lines are labelled with the regret along them, so that a point's regret can be read off.

import { el, shown, svg } from "./dom";
import type { Result } from "./format";
import { axes, drawing, Labels, line, linear, text, widthOf, type Plot } from "./plot";
import { section, type Section } from "./section";
import { SortedTable, type Row } from "./table";
import { count, energy, percent, time } from "./units";
import { quantileOf, shareText, type Model } from "./view";

const REGRETS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50];

export function front(model: Model): Section {
    const made = section("front", "Energy against delay", "");
    const chart = drawing("Energy against delay of each governor. The table of governors has the figures.",
        (root, width) => draw(model, root, width));
    made.body.append(el("figure", {}, chart.node, el("figcaption", { class: "caption" },
        "Down and left is better. The line is an oracle that knows how long each gap will be. Along each dashed line the cost is the same; its figure is the regret, the cost above the oracle’s.")));
    const show = () => {
        chart.redraw();
        made.basis(costBasis(model));
    };
    model.subscribe(show);
    show();
    return made;
}

export function governors(model: Model): Section {
    const made = section("governors", "Governors", "");
    const table = governorTable();
    const caption = el("p", { class: "caption" });
    made.body.append(caption, table.node);
    const show = () => {
        const gaps = model.logs.reduce((sum, log) => sum + log.gap_count, 0);
        caption.textContent = shown(`${model.logName(model.view.log)} on ${model.machine.title}: ${count(gaps)} gaps`);
        table.show(rows(model));
    };
    model.subscribe(show);
    show();
    return made;
}

/** The price for which sums by gap length and by CPU are known. */
export function priceName(model: Model): string {
    const price = model.facts.prices[model.price];
    if (!price) return "no price";
    const share = price.share ?? (price.price_mw ?? 0) / model.machine.full_price_mw;
    const isNear = Math.abs(share - model.view.share) > 0.01;
    return shown(price.name) + (isNear ? `, the nearest to λ=${shareText(model.view.share)} that was computed` : "");
}

/** What energy and delay rest on, for the machine. */
export function costBasis(model: Model): string {
    const list = (key: "power_basis" | "latency_basis") => {
        const kinds = new Map<string, string[]>();
        for (const state of model.machine.states) {
            if (!state.is_polling) kinds.set(state[key], [...(kinds.get(state[key]) ?? []), state.name]);
        }
        return [...kinds].map(([kind, names]) => (kinds.size === 1 ? kind : `${kind} (${names.join(", ")})`)).join(", ");
    };
    return `Delays and misses: simulated (exit latencies: ${list("latency_basis")}). Energy: computed (power: ${list("power_basis")}).`;
}

function draw(model: Model, root: SVGSVGElement, width: number): number {
    const height = Math.max(280, Math.min(400, width * 0.6));
    const plot: Plot = { left: 58, right: width - 14, top: 30, bottom: height - 42 };
    const results = model.results();
    const roleOf = (result: Result) => model.governor(result.governor).role;
    const inside = results.filter((result) => roleOf(result) !== "bound");
    const points = [...(inside.length ? inside : results), ...(model.front?.points ?? [])];
    if (points.length === 0) {
        root.append(text(plot.left, plot.top + 20, "No governor was replayed."));
        return 80;
    }
    const span = (values: number[]) => {
        const [low, high] = [Math.min(...values), Math.max(...values)];
        const margin = (high - low || high || 1) * 0.08;
        return [Math.max(0, low - margin), high + margin] as const;
    };
    const xs = span(points.map((point) => point.delay_ns));
    const ys = span(points.map((point) => point.energy_uj));
    const x = linear(xs[0], xs[1], [plot.left, plot.right], width / 110);
    const y = linear(ys[0], ys[1], [plot.bottom, plot.top], 5);
    axes(root, plot, { scale: x, name: "delay of all wake-ups together", format: time },
        { scale: y, name: "energy", format: energy });

    const labels = new Labels(plot);
    const visible = (result: Result) => inPlot(plot, x(result.delay_ns), y(result.energy_uj));
    const within = (at: number, low: number, high: number) => Math.min(Math.max(at, low + 4), high - 4);
    for (const result of results) {
        labels.take(within(x(result.delay_ns), plot.left, plot.right), within(y(result.energy_uj), plot.top, plot.bottom), 7);
    }

    // Lines of equal cost: energy = cost − λ · delay.
    const oracle = model.oracle;
    const perNs = model.lambdaMw * 1e-6;
    if (oracle) {
        let last = Infinity;
        for (const regret of [0, ...REGRETS]) {
            const cost = model.cost(oracle) * (1 + regret);
            const ends = clipped(xs, ys, cost, perNs);
            if (!ends) continue;
            const [[x1, y1], [x2, y2]] = ends.map(([delay, energy]) => [x(delay), y(energy)]);
            // The lines are parallel: leave out those too near to the last.
            const offset = y(cost - perNs * xs[0]);
            const slant = Math.cos(Math.atan2(y(ys[0]) - y(ys[0] + perNs * (xs[1] - xs[0])), plot.right - plot.left));
            if (last !== Infinity && (last - offset) * slant < 26) continue;
            last = offset;
            root.append(line(x1, y1, x2, y2, regret === 0 ? "iso least" : "iso"));
            // Beside the end that is farther right, where a steep line leaves room.
            const isSteep = y2 > plot.bottom - 2;
            const label = `+${percent(regret).replace(".0", "")}`;
            root.append(isSteep ? text(x2 - 4, y2 - 6, label, "end", "iso-label") : text(plot.right, y2 - 4, label, "end", "iso-label"));
            labels.take((isSteep ? x2 - 4 : plot.right) - 16, y2 - 8, 18, 6);
        }
    }

    const vertices = [...(model.front?.points ?? [])].sort((a, b) => a.delay_ns - b.delay_ns);
    root.append(svg("polyline", { class: "front", points: vertices.map((p) => `${x(p.delay_ns)},${y(p.energy_uj)}`).join(" ") }));
    for (const p of vertices) root.append(svg("circle", { class: "vertex", cx: x(p.delay_ns), cy: y(p.energy_uj), r: 2 }));
    if (oracle) {
        root.append(svg("path", { class: "oracle", d: diamond(x(oracle.delay_ns), y(oracle.energy_uj), 6) }));
        labels.take(x(oracle.delay_ns), y(oracle.energy_uj));
        root.append(labels.place(x(oracle.delay_ns), y(oracle.energy_uj), "oracle", "oracle-label"));
    }

    // Governors that stand at one place share a label, which begins with the chosen one.
    const places: { x: number; y: number; names: string[]; group: SVGElement }[] = [];
    for (const result of results) {
        const { governor } = result;
        const name = shown(model.governor(governor).name);
        const chosen = governor === model.view.governor ? " chosen" : governor === model.view.against ? " against" : "";
        const isBound = roleOf(result) === "bound";
        const group = svg("g", { class: `governor${isBound ? " bound" : ""}${chosen}` },
            svg("title", {}, `${name}: energy ${energy(result.energy_uj)}, delay ${time(result.delay_ns)}, regret ${percent(model.regret(result))}`));
        const [ox, oy] = [x(result.delay_ns), y(result.energy_uj)];
        const isInside = visible(result);
        // Beyond the edge: an arrow and the figure that doesn't fit.
        const [px, py] = isInside ? [ox, oy] : [within(ox, plot.left, plot.right), within(oy, plot.top, plot.bottom)];
        const beyond = [oy !== py ? energy(result.energy_uj) : "", ox !== px ? time(result.delay_ns) : ""].filter(Boolean).join(", ");
        group.append(isInside ? svg("circle", { cx: px, cy: py, r: 5 }) : svg("path", { d: arrow(px, py, Math.atan2(oy - py, ox - px)) }));
        group.addEventListener("click", () => model.set({ governor }));
        root.append(group);
        const shared = places.find((place) => Math.hypot(place.x - px, place.y - py) < 9);
        if (!shared) places.push({ x: px, y: py, names: [], group });
        const place = shared ?? places[places.length - 1];
        const label = beyond ? `${name} (${beyond})` : name;
        if (chosen) {
            place.group = group;
            place.names.unshift(label);
        } else place.names.push(label);
    }
    for (const { x, y, names: [first, ...others], group } of places) {
        const all = others.map((name) => `, ${name}`).join("");
        const rest = widthOf(first + all) < (plot.right - plot.left) * 0.7 ? all : ` and ${others.length} more`;
        const label = labels.place(x, y, first + (others.length ? rest : ""));
        if (others.length) (label.querySelector("text") ?? label).replaceChildren(first, svg("tspan", {}, rest));
        group.append(label);
        root.append(group); // above those that it speaks for
    }
    return height;
}

function inPlot(plot: Plot, x: number, y: number): boolean {
    return x >= plot.left - 1 && x <= plot.right + 1 && y >= plot.top - 1 && y <= plot.bottom + 1;
}

/** Where the line of that cost enters and leaves the plot, from left to right. */
function clipped(xs: readonly [number, number], ys: readonly [number, number], cost: number, perNs: number) {
    let [from, to] = xs;
    if (perNs > 0) {
        from = Math.max(from, (cost - ys[1]) / perNs);
        to = Math.min(to, (cost - ys[0]) / perNs);
    } else if (cost < ys[0] || cost > ys[1]) return null;
    return from < to ? [from, to].map((delay) => [delay, cost - perNs * delay] as const) : null;
}

function diamond(x: number, y: number, r: number): string {
    return `M${x} ${y - r}L${x + r} ${y}L${x} ${y + r}L${x - r} ${y}Z`;
}

function arrow(x: number, y: number, direction: number): string {
    const point = (angle: number, r: number) => `${(x + r * Math.cos(direction + angle)).toFixed(1)} ${(y + r * Math.sin(direction + angle)).toFixed(1)}`;
    return `M${point(0, 7)}L${point(2.4, 6)}L${point(-2.4, 6)}Z`;
}

function governorTable(): SortedTable {
    const column = (name: string, about: string, better: "less" | "more" | null = "less") =>
        ({ name, unit: "", about, better, is_text: false });
    return new SortedTable("Governors, the cheapest first", [
        { name: "governor", unit: "", about: "choose one to look at its mistakes", better: null, is_text: true },
        // On a phone the first four are seen without scrolling.
        column("regret", "cost above the oracle’s, at the λ above"),
        column("energy", "of all gaps"),
        column("p99", "99 % of all wake-ups waited no longer"),
        column("too deep", "stays, as the kernel counts them in “above”"),
        column("too shallow", "stays, as the kernel counts them in “below”"),
        column("p50", "half of all wake-ups waited no longer"),
        column("delay", "of all wake-ups together"),
        column("ticks", "stays that the tick ended", null),
    ], { column: 1, isDown: false });
}

function rows(model: Model): Row[] {
    const rows: Row[] = model.results().map((result) => {
        const { governor } = result;
        const { name, role } = model.governor(governor);
        const stays = result.states.reduce((sum, state) => sum + state.entry_count, 0);
        const share = (count: number) => ({ text: percent(stays ? count / stays : NaN), value: stays ? (count / stays) * 100 : null });
        const quantile = (share: number) => {
            const ns = quantileOf(result, share);
            return { text: time(ns ?? NaN), value: ns };
        };
        const regret = model.regret(result);
        return {
            choose: () => model.set({ governor }),
            isChosen: governor === model.view.governor,
            mark: role === "bound" ? "bound" : "",
            cells: [
                { text: name, value: name },
                { text: percent(regret), value: Number.isFinite(regret) ? regret * 100 : null },
                { text: energy(result.energy_uj), value: result.energy_uj },
                quantile(0.99),
                share(result.too_deep_count),
                share(result.too_shallow_count),
                quantile(0.5),
                { text: time(result.delay_ns), value: result.delay_ns },
                { text: count(result.tick_wake_count), value: result.tick_wake_count },
            ],
        };
    });
    const oracle = model.oracle;
    if (oracle) {
        const none = { text: "–", value: null };
        rows.push({
            mark: "bound",
            cells: [{ text: `oracle λ=${shareText(model.view.share)}`, value: "oracle" }, { text: "0", value: 0 },
                { text: energy(oracle.energy_uj), value: oracle.energy_uj }, none, none, none, none,
                { text: time(oracle.delay_ns), value: oracle.delay_ns }, none],
        });
    }
    return rows;
}
