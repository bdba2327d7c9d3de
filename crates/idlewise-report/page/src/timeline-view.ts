// The timeline's canvas: where it looks, what is chosen, and how it is drawn and moved.

import { END } from "./cost";
import type { CpuRange, Gaps, Lane, Misses } from "./course";
import { el } from "./dom";
import { barsOf, edgesOf, packedColour, paintBars, paintLane, paintSkipped, Pixels, type Bars, type Rgb, type Window } from "./lanes";
import { roundTicks } from "./plot";
import { colour } from "./theme";
import { count, exactTime, significant, time } from "./units";

/** A governor, or the recording. */
export interface Shown {
    name: string;
    lane: Lane;
    misses: Misses | null;
    /** Names of colours, by state. */
    colours: string[];
    states: string[];
}

const GUTTER = 70;
const AXIS = 24;
const OVERVIEW = 40;
const LEAST_NS = 1000;
const GLYPH = 14;

/** Heights of a CPU's parts, in CSS pixels. */
interface Layout {
    recorded: number;
    bar: number;
    lane: number;
    reasons: number;
    row: number;
}

export class TimelineView {
    readonly node: HTMLElement;
    selected: number | null = null;
    private readonly overview = el("canvas", { class: "overview", "aria-hidden": "true" });
    private readonly canvas = el("canvas", { class: "timeline", tabindex: 0, role: "application", "aria-label": "Timeline. Arrow keys move, plus and minus zoom, n and p go to misses, Enter chooses a gap; it is described below." });
    private readonly spacer = el("div");
    private readonly scroller = el("div", { class: "lanes" });
    private gaps: Gaps | null = null;
    private courses: Shown[] = [];
    private recorded: Shown | null = null;
    private skipped: Float64Array | null = null;
    private reasons: { rows: Float64Array; names: string[] } | null = null;
    private window: Window = { from: 0, to: 1 };
    private span = 1;
    private cpu = 0;
    private wanted: number | null = null;
    private width = 0;
    private isAsked = false;
    private overviewImage: ImageData | null = null;
    private palette = new Map<string, Rgb>();

    constructor(private readonly status: HTMLElement, private readonly onSelect: (row: number | null) => void) {
        this.scroller.append(this.canvas, this.spacer);
        this.node = el("div", { class: "when" }, this.overview, this.scroller);
        this.listen();
        new ResizeObserver(() => {
            this.width = Math.floor(this.scroller.clientWidth);
            this.overviewImage = null;
            this.ask();
        }).observe(this.scroller);
        this.scroller.addEventListener("scroll", () => this.ask());
    }

    show(gaps: Gaps, courses: Shown[], recorded: Shown | null, skipped: Float64Array | null, reasons: TimelineView["reasons"], keeps: boolean): void {
        [this.gaps, this.courses, this.recorded, this.skipped, this.reasons] = [gaps, courses, recorded, skipped, reasons];
        this.overviewImage = null;
        if (!keeps) {
            const ends = gaps.cpus.map(({ to }) => gaps.start[to - 1] + gaps.length[to - 1]);
            this.span = Math.max(LEAST_NS, ...ends);
            this.window = { from: 0, to: this.span };
            this.selected = null;
            this.cpu = 0;
        }
        if (this.wanted !== null) this.wantCpu(this.wanted);
        this.ask();
    }

    /** Colours have changed. */
    repaint(): void {
        this.palette.clear();
        this.overviewImage = null;
        // Now: a printer does not wait for the next frame.
        this.draw();
    }

    wantCpu(cpu: number): void {
        const place = this.gaps?.cpus.findIndex((range) => range.cpu === cpu) ?? -1;
        this.wanted = place < 0 ? cpu : null;
        if (place >= 0) this.toCpu(place);
    }

    intoView(): void {
        const box = this.node.getBoundingClientRect();
        if (box.bottom < 0 || box.top > innerHeight) this.node.scrollIntoView({ block: "center" });
    }

    whole(): void {
        this.look(0, this.span);
    }

    /** Zooms by a factor about a time, or about the chosen gap, or the middle. */
    zoom(factor: number, about?: number): void {
        const { from, to } = this.window;
        const middle = about ?? this.visibleSelection() ?? (from + to) / 2;
        const length = Math.min(this.span, Math.max(LEAST_NS, (to - from) * factor));
        const share = (middle - from) / (to - from);
        this.look(middle - share * length, middle + (1 - share) * length);
    }

    pan(share: number): void {
        const by = (this.window.to - this.window.from) * share;
        this.look(this.window.from + by, this.window.to + by);
    }

    zoomToSelected(): void {
        if (this.selected === null || !this.gaps) return;
        const [start, length] = [this.gaps.start[this.selected], this.gaps.length[this.selected]];
        const room = Math.max(length * 2, LEAST_NS);
        this.look(start + length / 2 - room, start + length / 2 + room);
    }

    moveCpu(by: number): void {
        if (this.gaps) this.toCpu(Math.min(this.gaps.cpus.length - 1, Math.max(0, this.cpu + by)));
    }

    select(row: number | null, center: boolean): void {
        this.selected = row;
        if (row !== null && this.gaps) {
            this.toCpu(this.gaps.cpus.indexOf(this.gaps.cpuOf(row)));
            const middle = this.gaps.start[row] + this.gaps.length[row] / 2;
            const { from, to } = this.window;
            if (center && (middle < from || middle > to)) this.look(middle - (to - from) / 2, middle + (to - from) / 2);
        }
        this.ask();
        this.onSelect(row);
    }

    selectMiddle(): void {
        const range = this.gaps?.cpus[this.cpu];
        if (!range) return;
        const row = this.gaps!.lastBefore(range, (this.window.from + this.window.to) / 2, range.from - 1);
        this.select(Math.max(row, range.from), true);
    }

    /** The next or previous miss of the CPU; false if there is none. */
    stepToMiss(misses: Misses, direction: 1 | -1): boolean {
        const { gaps } = this;
        const range = gaps?.cpus[this.cpu];
        if (!gaps || !range) return false;
        const here = this.selected !== null && this.selected >= range.from && this.selected < range.to
            ? this.selected
            : direction > 0 ? gaps.lastBefore(range, this.window.from, range.from - 1) : gaps.lastBefore(range, this.window.to, range.from - 1) + 1;
        for (let i = here + direction; i >= range.from && i < range.to; i += direction) {
            if (misses.course.verdict[i]) {
                this.select(i, true);
                return true;
            }
        }
        return false;
    }

    private toCpu(place: number): void {
        this.cpu = place;
        const { row } = this.layout();
        const [top, bottom] = [place * row, (place + 1) * row];
        const seen = this.viewHeight() - AXIS;
        if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
        else if (bottom > this.scroller.scrollTop + seen) this.scroller.scrollTop = bottom - seen;
        this.ask();
    }

    private look(from: number, to: number): void {
        const shift = Math.max(0, -from) - Math.max(0, to - this.span);
        this.window = to - from >= this.span ? { from: 0, to: this.span } : { from: from + shift, to: to + shift };
        this.ask();
    }

    private visibleSelection(): number | null {
        if (this.selected === null || !this.gaps) return null;
        const middle = this.gaps.start[this.selected] + this.gaps.length[this.selected] / 2;
        return middle >= this.window.from && middle <= this.window.to ? middle : null;
    }

    private layout(): Layout {
        const cpus = this.gaps?.cpus.length ?? 1;
        const isDense = cpus > 8;
        const recorded = this.recorded ? (isDense ? 3 : 6) : 0;
        // Few CPUs have more room each.
        const large = cpus <= 2 ? 2 : 1;
        const [bar, lane, reasons] = isDense ? [5, 8, 0] : [11 * large, 16 * large, this.reasons ? 13 : 0];
        const courses = Math.max(1, this.courses.length);
        return { recorded, bar, lane, reasons, row: recorded + 2 + courses * (2 * bar + lane + 2) + reasons + (isDense ? 3 : 8) };
    }

    private viewHeight(): number {
        const all = (this.gaps?.cpus.length ?? 1) * this.layout().row + AXIS;
        return Math.min(all, Math.max(280, Math.min(620, innerHeight * 0.7)));
    }

    private ask(): void {
        if (this.isAsked) return;
        this.isAsked = true;
        requestAnimationFrame(() => {
            this.isAsked = false;
            this.draw();
        });
    }

    private rgb(name: string): Rgb {
        let found = this.palette.get(name);
        if (!found) this.palette.set(name, (found = colour(name)));
        return found;
    }

    private packed(name: string): number {
        return packedColour(this.rgb(name));
    }

    private css(name: string): string {
        return `rgb(${this.rgb(name).join(" ")})`;
    }

    private draw(): void {
        const { gaps, canvas, window: shownWindow } = this;
        if (!gaps || this.width < 100) return;
        const layout = this.layout();
        const height = this.viewHeight();
        const ratio = Math.min(2, devicePixelRatio || 1);
        const plotWidth = Math.max(1, Math.round((this.width - GUTTER) * ratio));
        const [pixelWidth, pixelHeight] = [Math.round(this.width * ratio), Math.round(height * ratio)];
        if (canvas.width !== pixelWidth || canvas.height !== pixelHeight) {
            [canvas.width, canvas.height] = [pixelWidth, pixelHeight];
            [canvas.style.width, canvas.style.height] = [`${this.width}px`, `${height}px`];
        }
        this.scroller.style.height = `${height}px`;
        this.spacer.style.height = `${gaps.cpus.length * layout.row + AXIS - height}px`;

        const context = canvas.getContext("2d", { alpha: false })!;
        const pixels = new Pixels(new ImageData(plotWidth, Math.max(1, pixelHeight - Math.round(AXIS * ratio))), this.packed("paper"));
        const scrolled = this.scroller.scrollTop;
        const first = Math.floor(scrolled / layout.row);
        const rows = gaps.cpus.slice(first, Math.ceil((scrolled + height) / layout.row)).map((range, i) => ({
            range, top: (first + i) * layout.row - scrolled, edges: new Int32Array(plotWidth + 1), bars: [] as Bars[],
        }));
        let most = 1e-9;
        for (const row of rows) {
            edgesOf(gaps, row.range, shownWindow, plotWidth, row.edges);
            for (const { misses } of this.courses) {
                const bars = barsOf(misses!, row.range, row.edges, shownWindow, plotWidth);
                row.bars.push(bars);
                most = Math.max(most, bars.most);
            }
        }
        const at = (y: number) => Math.round(y * ratio);
        for (const row of rows) {
            let y = row.top + 2;
            if (this.recorded) {
                paintLane(pixels, row.range, this.recorded.lane, row.edges, shownWindow, at(y), at(layout.recorded), this.recorded.colours.map((name) => this.packed(name)));
                y += layout.recorded + 2;
            }
            this.courses.forEach((course, i) => {
                const lane = y + layout.bar;
                const [top, bottom] = [at(lane), at(lane + layout.lane)];
                if (this.skipped) paintSkipped(pixels, this.skipped, row.range, row.edges, top, bottom - top, this.packed("rule"));
                paintLane(pixels, row.range, course.lane, row.edges, shownWindow, top, bottom - top, course.colours.map((name) => this.packed(name)));
                paintBars(pixels, row.bars[i], most, top, bottom, at(layout.bar - 1), Math.round(2 * ratio), this.packed("deep"), this.packed("shallow"));
                y += 2 * layout.bar + layout.lane + 2;
            });
        }
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.fillStyle = this.css("paper");
        context.fillRect(0, 0, pixelWidth, pixelHeight);
        context.putImageData(pixels.image, at(GUTTER), at(AXIS));
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
        this.drawAxis(context);
        context.save();
        context.beginPath();
        context.rect(0, AXIS, this.width, height - AXIS);
        context.clip();
        for (const row of rows) this.drawRow(context, layout, row.range, row.top + AXIS, row.edges, most);
        context.restore();
        this.drawOverview(ratio);
        this.describe();
    }

    private xOf(time: number): number {
        return GUTTER + ((time - this.window.from) / (this.window.to - this.window.from)) * (this.width - GUTTER);
    }

    private timeAt(x: number): number {
        return this.window.from + ((x - GUTTER) / (this.width - GUTTER)) * (this.window.to - this.window.from);
    }

    private drawAxis(context: CanvasRenderingContext2D): void {
        const { from, to } = this.window;
        const ticks = roundTicks(from, to, (this.width - GUTTER) / 110);
        const step = (ticks[1] ?? to) - ticks[0];
        // Far into the recording, the ticks count from a round time that the gutter names.
        const isDeep = step < to * 0.01;
        const coarse = 10 ** (Math.floor(Math.log10(step)) + 3);
        const base = isDeep ? Math.floor(from / coarse) * coarse : 0;
        context.fillStyle = this.css("soft");
        context.strokeStyle = this.css("grid");
        context.textAlign = "center";
        for (const tick of ticks) {
            const x = Math.round(this.xOf(tick)) + 0.5;
            if (x < GUTTER) continue;
            context.fillText(isDeep ? `+${time(tick - base)}` : time(tick), Math.min(x, this.width - 28), 14);
            context.beginPath();
            context.moveTo(x, 18);
            context.lineTo(x, 24);
            context.stroke();
        }
        context.textAlign = "left";
        if (isDeep) context.fillText(exactTime(base), 0, 14, GUTTER + 20);
    }

    private drawRow(context: CanvasRenderingContext2D, layout: Layout, range: CpuRange, top: number, edges: Int32Array, most: number): void {
        const gaps = this.gaps!;
        const isCurrent = gaps.cpus[this.cpu] === range;
        context.fillStyle = this.css(isCurrent ? "chosen" : "ink");
        context.textAlign = "left";
        const height = layout.row - 4;
        context.fillText(`CPU ${range.cpu}`, 4, top + Math.min(16, height / 2 + 5));
        if (isCurrent) context.fillRect(0, top + 1, 2, height);
        if (this.courses.length > 1 && layout.reasons) {
            context.fillStyle = this.css("soft");
            this.courses.forEach((course, i) => context.fillText(course.name, 4,
                top + 2 + layout.recorded + 2 + i * (2 * layout.bar + layout.lane + 2) + layout.bar + layout.lane / 2 + (i === 0 ? 12 : 4), GUTTER - 8));
        }
        const [low, high] = [Math.max(range.from, edges[0]), edges[edges.length - 1] + 1];
        let y = top + 2 + (this.recorded ? layout.recorded + 2 : 0);
        for (const course of this.courses) {
            const lane = y + layout.bar;
            this.drawGlyphs(context, course.misses!, range, edges, lane, layout, most);
            if (high - low < 3000) this.drawEnds(context, course, low, high, lane, layout.lane);
            y += 2 * layout.bar + layout.lane + 2;
        }
        if (this.reasons && layout.reasons && high - low < 3000) this.drawReasons(context, low, high, y + 9);
        if (this.selected !== null && this.selected >= range.from && this.selected < range.to) {
            const from = this.xOf(gaps.start[this.selected]);
            const to = this.xOf(gaps.start[this.selected] + gaps.length[this.selected]);
            context.strokeStyle = this.css("focus");
            context.lineWidth = 2;
            context.strokeRect(Math.max(GUTTER - 4, from - 2), top + 1, Math.max(5, Math.min(to, this.width + 10) - Math.max(GUTTER - 4, from - 2) + 2), height);
            context.lineWidth = 1;
        }
    }

    /** A triangle at the worst miss of each stretch, if it matters in what is shown. */
    private drawGlyphs(context: CanvasRenderingContext2D, misses: Misses, range: CpuRange, edges: Int32Array, lane: number, layout: Layout, most: number): void {
        const gaps = this.gaps!;
        const step = Math.round((GLYPH / (this.width - GUTTER)) * (edges.length - 1));
        const size = layout.reasons || layout.bar > 6 ? 4 : 3;
        for (let x = 0; x < edges.length - 1; x += step) {
            const from = x === 0 ? Math.max(range.from, edges[0]) : edges[x] + 1;
            const worst = misses.worstIn(from, edges[Math.min(edges.length - 1, x + step)] + 1);
            if (worst < 0 || misses.regret[worst] < most * 0.06) continue;
            const length = gaps.length[worst];
            const at = Math.max(GUTTER + 4, this.xOf(gaps.start[worst] + Math.min(length / 2, (this.window.to - this.window.from) * 0.02)));
            const isDeep = (misses.course.verdict[worst] & 1) === 1;
            const tall = Math.max(2, Math.sqrt(misses.regret[worst] / most) * (layout.bar - 1));
            const y = isDeep ? lane + layout.lane + tall - 1 : lane - tall + 1;
            const tip = isDeep ? size : -size;
            context.fillStyle = this.css(isDeep ? "deep" : "shallow");
            context.beginPath();
            context.moveTo(at - size, y - tip / 2);
            context.lineTo(at + size, y - tip / 2);
            context.lineTo(at, y + tip);
            context.fill();
        }
    }

    /** Ticks, promotions and poll limits within gaps, and the states' names where there is room. */
    private drawEnds(context: CanvasRenderingContext2D, course: Shown, low: number, high: number, lane: number, height: number): void {
        const gaps = this.gaps!;
        const own = course.misses!.course;
        context.textAlign = "left";
        for (let i = low; i < high; i++) {
            const from = this.xOf(gaps.start[i]);
            const wide = this.xOf(gaps.start[i] + gaps.length[i]) - from;
            if (wide < 6) continue;
            const perNs = wide / Math.max(1, gaps.length[i]);
            for (const stay of own.stays(i).stays) {
                if (stay.end === END.rest) continue;
                const [start, end] = [from + stay.at * perNs, from + (stay.at + stay.length) * perNs];
                const name = course.states[stay.state] ?? "";
                if (height > 12 && Math.min(end, this.width) - Math.max(start, GUTTER) > name.length * 8 + 8) {
                    // Dark states need light letters.
                    const [r, g, b] = this.rgb(course.colours[stay.state]);
                    context.fillStyle = r * 0.3 + g * 0.6 + b * 0.1 > 140 ? "#000" : "#fff";
                    context.fillText(name, Math.max(start, GUTTER) + 4, lane + height / 2 + 4);
                }
                if (stay.end === END.event || end < GUTTER) continue;
                context.fillStyle = this.css("tick-mark");
                if (stay.end === END.tick) context.fillRect(end - 0.5, lane - 4, 1.5, height + 8);
                else if (stay.end === END.promotion) {
                    context.beginPath();
                    context.moveTo(end, lane + height / 2 - 4);
                    context.lineTo(end + 4, lane + height / 2);
                    context.lineTo(end, lane + height / 2 + 4);
                    context.lineTo(end - 4, lane + height / 2);
                    context.fill();
                } else context.fillRect(end - 0.5, lane + height / 2, 1, height / 2);
            }
        }
    }

    /** What ended each gap: a word where it fits, else its first letter. */
    private drawReasons(context: CanvasRenderingContext2D, low: number, high: number, y: number): void {
        const { rows, names } = this.reasons!;
        context.fillStyle = this.css("soft");
        context.textAlign = "center";
        let free = GUTTER;
        for (let i = low; i < high; i++) {
            const name = names[rows[i]];
            if (!name || name === "unknown") continue;
            const x = this.xOf(this.gaps!.start[i] + this.gaps!.length[i]);
            const room = Math.min(x - free, (i + 1 < high ? this.xOf(this.gaps!.start[i + 1] + this.gaps!.length[i + 1]) : this.width) - x);
            if (x < GUTTER || x > this.width || room < 7) continue;
            const text = room > name.length * 7 ? name : name[0];
            context.fillText(text, x, y);
            free = x + text.length * 3.5;
        }
    }

    private drawOverview(ratio: number): void {
        const { overview, gaps } = this;
        const width = Math.round(this.width * ratio);
        const height = Math.round(OVERVIEW * ratio);
        if (overview.width !== width || overview.height !== height) {
            [overview.width, overview.height] = [width, height];
            this.overviewImage = null;
        }
        const context = overview.getContext("2d", { alpha: false })!;
        const plotWidth = Math.max(1, Math.round((this.width - GUTTER) * ratio));
        if (!this.overviewImage) {
            const pixels = new Pixels(new ImageData(plotWidth, height), this.packed("panel"));
            const sum: Bars = { deep: new Float32Array(plotWidth), shallow: new Float32Array(plotWidth), most: 1e-9 };
            const edges = new Int32Array(plotWidth + 1);
            const window: Window = { from: 0, to: this.span };
            for (const range of gaps!.cpus) {
                if (!this.courses[0]) break;
                edgesOf(gaps!, range, window, plotWidth, edges);
                const bars = barsOf(this.courses[0].misses!, range, edges, window, plotWidth);
                for (let x = 0; x < plotWidth; x++) {
                    sum.deep[x] += bars.deep[x];
                    sum.shallow[x] += bars.shallow[x];
                    sum.most = Math.max(sum.most, sum.deep[x], sum.shallow[x]);
                }
            }
            const middle = Math.round(height / 2);
            paintBars(pixels, sum, sum.most, middle, middle + 1, middle - 2, 1, this.packed("deep"), this.packed("shallow"));
            this.overviewImage = pixels.image;
        }
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.fillStyle = this.css("paper");
        context.fillRect(0, 0, width, height);
        context.putImageData(this.overviewImage, Math.round(GUTTER * ratio), 0);
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
        context.fillStyle = this.css("soft");
        context.fillText("all", 4, OVERVIEW / 2 + 4);
        const scale = (this.width - GUTTER) / this.span;
        const [from, to] = [GUTTER + this.window.from * scale, GUTTER + this.window.to * scale];
        context.strokeStyle = this.css("focus");
        context.lineWidth = 2;
        context.strokeRect(Math.max(GUTTER + 1, from), 1, Math.max(3, Math.min(this.width - 1, to) - Math.max(GUTTER + 1, from)), OVERVIEW - 2);
    }

    /** Says in words what is shown. */
    private describe(): void {
        const { from, to } = this.window;
        const length = to - from;
        const text = length >= this.span ? `The whole recording, ${time(this.span)}.` : `${time(length)} from ${exactTime(Math.round(from))}, ${significant(this.span / length, 2)} times magnified.`;
        this.status.textContent = text;
        this.canvas.dataset.from = String(from);
        this.canvas.dataset.to = String(to);
        this.canvas.dataset.selected = this.selected === null ? "" : String(this.selected);
    }

    private rowAt(y: number): CpuRange | null {
        if (!this.gaps || y < AXIS) return null;
        return this.gaps.cpus[Math.floor((y - AXIS + this.scroller.scrollTop) / this.layout().row)] ?? null;
    }

    /** The gap at a point; near it, because many are narrower than a pointer. */
    private gapAt(x: number, y: number): number | null {
        const range = this.rowAt(y);
        if (!range || x < GUTTER) return null;
        const gaps = this.gaps!;
        const reach = (4 / (this.width - GUTTER)) * (this.window.to - this.window.from);
        const at = this.timeAt(x);
        const first = gaps.lastBefore(range, at - reach, range.from - 1);
        const last = gaps.lastBefore(range, at + reach, Math.max(first, range.from - 1));
        if (last < range.from) return null;
        // Under a crowd of gaps, the worst miss is what one aims at.
        const worst = this.courses[0]?.misses?.worstIn(Math.max(first, range.from), last + 1) ?? -1;
        const here = gaps.lastBefore(range, at, range.from - 1);
        if (here >= range.from && gaps.length[here] > 2 * reach && at <= gaps.start[here] + gaps.length[here]) return here;
        if (worst >= 0 && gaps.start[worst] + gaps.length[worst] >= at - reach) return worst;
        return gaps.start[last] + gaps.length[last] >= at - reach ? last : null;
    }

    private listen(): void {
        const { canvas, overview } = this;
        const place = (event: { clientX: number; clientY: number }) => {
            const box = canvas.getBoundingClientRect();
            return [event.clientX - box.left, event.clientY - box.top] as const;
        };
        canvas.addEventListener("wheel", (event) => {
            const [x] = place(event);
            if (event.ctrlKey || event.metaKey) {
                event.preventDefault();
                this.zoom(1.0018 ** event.deltaY, this.timeAt(x));
            } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
                event.preventDefault();
                this.pan((event.deltaX || event.deltaY) / this.width);
            }
        }, { passive: false });
        canvas.addEventListener("dblclick", (event) => this.zoom(0.25, this.timeAt(place(event)[0])));

        // One pointer drags, two zoom.
        const pointers = new Map<number, number>();
        let moved = 0;
        canvas.addEventListener("pointerdown", (event) => {
            pointers.set(event.pointerId, place(event)[0]);
            moved = 0;
            canvas.setPointerCapture(event.pointerId);
        });
        canvas.addEventListener("pointermove", (event) => {
            const [x, y] = place(event);
            const before = pointers.get(event.pointerId);
            if (before === undefined) {
                this.hover(x, y);
                return;
            }
            moved += Math.abs(x - before);
            const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
            if (other !== undefined) this.zoom(Math.abs(before - other) / Math.max(1, Math.abs(x - other)), this.timeAt((x + other) / 2));
            else if (moved > 4) this.pan((before - x) / (this.width - GUTTER));
            pointers.set(event.pointerId, x);
        });
        const up = (event: PointerEvent) => {
            pointers.delete(event.pointerId);
            if (event.type !== "pointerup" || moved > 4) return;
            const [x, y] = place(event);
            const row = this.gapAt(x, y);
            const range = this.rowAt(y);
            if (range) this.cpu = this.gaps!.cpus.indexOf(range);
            this.select(row, false);
        };
        canvas.addEventListener("pointerup", up);
        canvas.addEventListener("pointercancel", up);

        const jump = (event: PointerEvent) => {
            if (event.buttons !== 1) return;
            const box = overview.getBoundingClientRect();
            const middle = ((event.clientX - box.left - GUTTER) / (this.width - GUTTER)) * this.span;
            const half = (this.window.to - this.window.from) / 2;
            this.look(middle - half, middle + half);
        };
        overview.addEventListener("pointerdown", jump);
        overview.addEventListener("pointermove", jump);
    }

    private hover(x: number, y: number): void {
        const row = this.gapAt(x, y);
        if (row === null) {
            this.describe();
            return;
        }
        const { gaps } = this;
        const range = gaps!.cpuOf(row);
        const words = this.courses.map(({ name, misses, states }) => {
            const { course } = misses!;
            return `${name} ${states[course.state[row]]}${["", " ▼ too deep", " ▲ too shallow", " ▼▲ both"][course.verdict[row]]}`;
        });
        this.status.textContent = `CPU ${range.cpu}, gap ${count(row - range.from + 1)}: ${time(gaps!.length[row])}; ${words.join("; ")}`;
    }
}
