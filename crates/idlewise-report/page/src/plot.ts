// What all charts share: scales with round ticks, a drawing that follows its width, labels that don't collide.
//
// Charts are SVG with real text: it can be selected, printed and read aloud, and the theme's colours apply.

import { shown, svg } from "./dom";

export interface Scale {
    (value: number): number;
    invert(position: number): number;
    ticks: number[];
    range: [number, number];
}

/** Round numbers within [low, high], about `count` of them. */
export function roundTicks(low: number, high: number, count: number): number[] {
    if (!(high > low)) return [low];
    const rough = (high - low) / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough * 0.999)!;
    const ticks: number[] = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
    return ticks;
}

export function linear(low: number, high: number, range: [number, number], count = 5): Scale {
    if (!(high > low)) [low, high] = [low - (Math.abs(low) || 1) / 2, low + (Math.abs(low) || 1) / 2];
    const factor = (range[1] - range[0]) / (high - low);
    const scale = (value: number) => range[0] + (value - low) * factor;
    return Object.assign(scale, {
        invert: (position: number) => low + (position - range[0]) / factor,
        ticks: roundTicks(low, high, count),
        range,
    });
}

export function logarithmic(low: number, high: number, range: [number, number]): Scale {
    low = Math.max(low, 1e-12);
    if (!(high > low)) high = low * 10;
    const [from, to] = [Math.log10(low), Math.log10(high)];
    const factor = (range[1] - range[0]) / (to - from);
    const scale = (value: number) => range[0] + (Math.log10(Math.max(value, low)) - from) * factor;
    let ticks: number[] = [];
    for (let i = Math.ceil(from - 1e-9); i <= to + 1e-9; i++) ticks.push(10 ** i);
    const room = Math.abs(range[1] - range[0]) / 44;
    if (ticks.length > room) ticks = ticks.filter((_, i) => i % Math.ceil(ticks.length / Math.max(room, 1)) === 0);
    if (ticks.length < 2) ticks = roundTicks(low, high, 4).filter((tick) => tick > 0);
    return Object.assign(scale, { invert: (position: number) => 10 ** (from + (position - range[0]) / factor), ticks, range });
}

export interface Drawing {
    node: SVGSVGElement;
    redraw(): void;
}

/** A chart that is drawn again when its width changes. `draw` fills an empty picture and returns its height. */
export function drawing(label: string, draw: (root: SVGSVGElement, width: number) => number): Drawing {
    const node = svg("svg", { class: "chart", role: "img", "aria-label": label });
    let width = 0;
    const redraw = () => {
        if (width < 50) return;
        node.replaceChildren();
        const height = draw(node, width);
        node.setAttribute("viewBox", `0 0 ${width} ${height}`);
        node.setAttribute("height", String(height));
    };
    const measure = () => {
        const now = Math.floor(node.parentElement?.clientWidth ?? 0);
        if (now === width) return;
        width = now;
        redraw();
    };
    new ResizeObserver(measure).observe(node);
    addEventListener("beforeprint", measure); // a printer may come before the first frame
    return { node, redraw };
}

type Anchor = "start" | "middle" | "end";

export function text(x: number, y: number, content: string, anchor: Anchor = "start", className = ""): SVGTextElement {
    return svg("text", { x, y, "text-anchor": anchor, class: className || null }, content);
}

export function line(x1: number, y1: number, x2: number, y2: number, className: string): SVGLineElement {
    return svg("line", { x1, y1, x2, y2, class: className });
}

export interface Plot {
    left: number;
    right: number;
    top: number;
    bottom: number;
}

/** Ticks with their numbers, below and at the left; the axes' names stand beside the last number. */
export function axes(root: SVGSVGElement, plot: Plot, x: Axis | null, y: Axis | null): void {
    for (const tick of x?.scale.ticks ?? []) {
        const at = x!.scale(tick);
        if (at < plot.left - 1 || at > plot.right + 1) continue;
        root.append(line(at, plot.bottom, at, plot.bottom + 4, "tick"),
            text(at, plot.bottom + 17, x!.format(tick), "middle", "number"));
    }
    if (x) root.append(text((plot.left + plot.right) / 2, plot.bottom + 34, x.name, "middle", "name"));
    for (const tick of y?.scale.ticks ?? []) {
        const at = y!.scale(tick);
        if (at < plot.top - 1 || at > plot.bottom + 1) continue;
        root.append(line(plot.left, at, plot.right, at, "grid"), text(plot.left - 6, at + 4, y!.format(tick), "end", "number"));
    }
    if (y) root.append(text(Math.max(0, plot.left - 50), plot.top - 10, y.name, "start", "name"));
}

export interface Axis {
    scale: Scale;
    name: string;
    format(value: number): string;
}

interface Box {
    left: number;
    top: number;
    right: number;
    bottom: number;
}

interface Placed extends Box {
    anchor: Anchor;
    x: number;
    y: number;
}

const ruler = document.createElement("canvas").getContext("2d")!;

/** How wide a chart's text is at most: bold. */
export function widthOf(content: string): number {
    ruler.font = `600 12px ${getComputedStyle(document.body).fontFamily}`;
    return ruler.measureText(content).width;
}

/** A long name is cut; the table has all of it. */
export function cut(name: string, width: number): string {
    let all = shown(name);
    if (widthOf(all) <= width) return all;
    while (all.length > 3 && widthOf(`${all}…`) > width) all = all.slice(0, -1);
    return `${all}…`;
}

function placed(x: number, y: number, content: string, anchor: Anchor): Placed {
    const width = widthOf(content) + 2;
    const left = x - (anchor === "end" ? width : anchor === "middle" ? width / 2 : 0);
    return { anchor, x, y, left, right: left + width, top: y - 12, bottom: y + 4 };
}

/** Places labels beside points so that none covers another. */
export class Labels {
    private readonly taken: Box[] = [];

    constructor(private readonly plot: Plot) {}

    /** Keeps other labels away from here. */
    take(x: number, y: number, radius = 5, height = radius): void {
        this.taken.push({ left: x - radius, right: x + radius, top: y - height, bottom: y + height });
    }

    place(x: number, y: number, content: string, className = ""): SVGElement {
        const gap = 9;
        const at = (anchor: Anchor, dx: number, dy: number) => placed(x + dx, y + dy, content, anchor);
        const places = [at("start", gap, 4), at("end", -gap, 4), at("middle", 0, -gap), at("middle", 0, gap + 8)];
        for (let step = 1; step < 16; step++) {
            for (const sign of [1, -1]) {
                places.push(at("start", gap, 4 + sign * step * 12), at("end", -gap, 4 + sign * step * 12));
            }
        }
        const best = places.find((box) => this.fits(box)) ?? places[0];
        const label = this.put(best, content, className);
        // A line leads from a label that stands away to its point.
        return Math.abs(best.y - y) < 24 ? label : svg("g", {}, line(x, y, best.x, best.y + (best.y < y ? 3 : -11), "tick"), label);
    }

    /** Beside a vertical line, at a height where the label is alone, with a dot on the line; null if there is none. */
    beside(x: number, top: number, bottom: number, content: string, className: string): SVGElement | null {
        for (let y = top; y <= bottom; y += 7) {
            const dot = { left: x - 4, right: x + 4, top: y - 4, bottom: y + 4 };
            const box = [placed(x + 7, y + 4, content, "start"), placed(x - 7, y + 4, content, "end")].find((box) => this.fits(box));
            if (!box || !this.fits(dot)) continue;
            this.taken.push(dot);
            return svg("g", { class: className }, svg("circle", { cx: x, cy: y, r: 2.5 }), this.put(box, content, className));
        }
        return null;
    }

    /** Within the plot, and over no other label. */
    private fits(box: Box): boolean {
        return box.left >= this.plot.left - 4 && box.right <= this.plot.right + 4 && box.top >= 0 && box.bottom <= this.plot.bottom + 2
            && !this.taken.some((other) => box.left < other.right && box.right > other.left && box.top < other.bottom && box.bottom > other.top);
    }

    private put(place: Placed, content: string, className: string): SVGTextElement {
        this.taken.push(place);
        return text(place.x, place.y, content, place.anchor, className);
    }
}
