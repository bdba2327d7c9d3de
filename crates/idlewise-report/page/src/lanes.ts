// Paints lanes of time into pixels, a column of pixels at a time. Within a column, states take the share of its time
// that was spent in them, so one rule holds from the whole recording to a microsecond, and nothing that took time
// vanishes. What went wrong is a bar beside the lane: up for too shallow, down for too deep, and never less than two
// pixels, so that a miss is seen however many gaps share the column.

import type { CpuRange, Gaps, Lane, Misses } from "./course";

export type Rgb = [number, number, number];

export function packedColour([r, g, b]: Rgb): number {
    return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
}

/** The stretch of time that is shown. */
export interface Window {
    from: number;
    to: number;
}

/** For each edge between pixel columns, the last gap that began before it. */
export function edgesOf(gaps: Gaps, range: CpuRange, window: Window, width: number, out: Int32Array): void {
    const step = (window.to - window.from) / width;
    // A gap that begins exactly at the first edge belongs to the first column.
    let i = gaps.lastBefore(range, window.from - step * 1e-3, range.from - 1);
    out[0] = i;
    for (let x = 1; x <= width; x++) out[x] = i = gaps.lastBefore(range, window.from + step * x, i);
}

export class Pixels {
    readonly data: Uint32Array;

    constructor(readonly image: ImageData, paper: number) {
        this.data = new Uint32Array(image.data.buffer);
        this.data.fill(paper);
    }

    get width(): number {
        return this.image.width;
    }

    column(x: number, top: number, bottom: number, colour: number): void {
        const { data, width } = this;
        const last = Math.min(bottom, this.image.height);
        for (let y = Math.max(0, top), at = y * width + x; y < last; y++, at += width) data[at] = colour;
    }
}

/** Paints the states of a CPU between `top` and `top + height`, the deepest at the bottom. */
export function paintLane(
    pixels: Pixels, range: CpuRange, lane: Lane, edges: Int32Array, window: Window,
    top: number, height: number, colours: number[],
): void {
    const { width } = pixels;
    const step = (window.to - window.from) / width;
    let before = new Float64Array(lane.stateCount);
    let after = new Float64Array(lane.stateCount);
    lane.until(edges[0], range.from, window.from, before);
    for (let x = 0; x < width; x++) {
        lane.until(edges[x + 1], range.from, window.from + step * (x + 1), after);
        let share = 0;
        let bottom = top + height;
        for (let state = lane.stateCount - 1; state >= 0; state--) {
            share += (after[state] - before[state]) / step;
            const y = top + height - Math.round(Math.min(1, share) * height);
            if (y < bottom) pixels.column(x, y, bottom, colours[state]);
            bottom = Math.min(bottom, y);
        }
        [before, after] = [after, before];
    }
}

/** Hatches stretches whose gaps the page does not hold: neither idle nor busy is known. Painted before the lane. */
export function paintSkipped(pixels: Pixels, skipped: Float64Array, range: CpuRange, edges: Int32Array, top: number, height: number, colour: number): void {
    for (let x = 0; x < pixels.width; x++) {
        const next = edges[x + 1] + 1;
        const isIn = next < range.to && skipped[next] > 0 || edges[x] + 1 < next && anySkipped(skipped, edges[x] + 1, next);
        if (isIn && x % 3 !== 2) pixels.column(x, top, top + height, colour);
    }
}

function anySkipped(skipped: Float64Array, from: number, to: number): boolean {
    for (let i = Math.max(0, from); i < Math.min(to, from + 8); i++) if (skipped[i] > 0) return true;
    return false;
}

/** The regret of each pixel column: of the misses that begin in it, and of one that is wider than it. */
export interface Bars {
    deep: Float32Array;
    shallow: Float32Array;
    most: number;
}

/** Marks a miss without regret: it is drawn as short as can be. */
const TRIFLE = 1e-9;

export function barsOf(misses: Misses, range: CpuRange, edges: Int32Array, window: Window, width: number): Bars {
    const { course: { gaps, verdict }, regret, deep, shallow, counts } = misses;
    const bars: Bars = { deep: new Float32Array(width), shallow: new Float32Array(width), most: 0 };
    const step = (window.to - window.from) / width;
    for (let x = 0; x < width; x++) {
        const [low, high] = [edges[x] + 1, edges[x + 1] + 1];
        let [down, up] = [0, 0];
        if (counts[high] !== counts[low]) {
            [down, up] = [deep[high] - deep[low], shallow[high] - shallow[low]];
            // Which of the two kinds a miss without regret is, its own row tells.
            if (down + up <= TRIFLE) for (let i = low; i < high; i++) {
                if (verdict[i] & 1) down = Math.max(down, TRIFLE);
                else if (verdict[i]) up = Math.max(up, TRIFLE);
            }
        }
        const wide = low - 1;
        if (wide >= range.from && verdict[wide] && gaps.length[wide] > step && gaps.start[wide] + gaps.length[wide] > window.from + step * x) {
            if (verdict[wide] & 1) down = Math.max(down, regret[wide], TRIFLE);
            else up = Math.max(up, regret[wide], TRIFLE);
        }
        bars.deep[x] = down;
        bars.shallow[x] = up;
        bars.most = Math.max(bars.most, down, up);
    }
    return bars;
}

/** Paints bars upwards above `top` and downwards below `bottom`. Heights are by the root, so that small ones show. */
export function paintBars(
    pixels: Pixels, bars: Bars, most: number, top: number, bottom: number, height: number, least: number,
    deep: number, shallow: number,
): void {
    for (let x = 0; x < pixels.width; x++) {
        const tall = (value: number) => Math.max(least, Math.round(Math.sqrt(value / most) * height));
        if (bars.shallow[x] > 0) pixels.column(x, top - tall(bars.shallow[x]), top, shallow);
        if (bars.deep[x] > 0) pixels.column(x, bottom, bottom + tall(bars.deep[x]), deep);
    }
}
