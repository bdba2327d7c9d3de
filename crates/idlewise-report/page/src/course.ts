// Gaps of a log, and what a governor did in them: decoded columns, the cost of each gap, and sums from which any
// stretch of time can be drawn at once.
//
// `more` of a course has entries, each with a head, `(4 · state + verdict) · 16 + kind`, and perhaps numbers:
//
// | kind | numbers | means |
// | --- | --- | --- |
// | 0 event, 1 tick, 2 poll limit, 3 promotion | none | a stay and what ended it, when and as long as `implied` says |
// | the same + 8 | wait, length | a stay that began `wait` after the end of the one before |
// | 7 | count, length | further stays in this state, together |
// | 6 | ticks, work, delay | what these further stays had: ticks, running time; and the delay of the gap's event |

import { Costs, END, UJ_PER_MW_NS } from "./cost";
import { needed, optional } from "./data";
import type { Course as CourseFacts, Detail, Machine } from "./format";

const REST = 7;
const REST_WORK = 6;

export interface CpuRange {
    cpu: number;
    from: number;
    to: number;
}

/** The gaps of a log that the page holds, by CPU, then by time. Times are in nanoseconds from the log's first. */
export class Gaps {
    readonly cpus: CpuRange[] = [];
    private readonly asked = new Map<string, Promise<Float64Array | null>>();

    private constructor(
        readonly detail: Detail,
        readonly start: Float64Array,
        readonly length: Float64Array,
        cpu: Float64Array,
    ) {
        for (let from = 0; from < cpu.length;) {
            let to = from + 1;
            while (to < cpu.length && cpu[to] === cpu[from]) to++;
            this.cpus.push({ cpu: cpu[from], from, to });
            from = to;
        }
        for (const { from, to } of this.cpus) {
            let at = detail.offset_ns;
            for (let i = from; i < to; i++) {
                start[i] += at;
                at = start[i] + length[i];
            }
        }
    }

    static async read(detail: Detail): Promise<Gaps> {
        const { columns, quantum_ns } = detail;
        const [busy, gap, cpu] = await Promise.all([
            needed(columns, "busy", quantum_ns), needed(columns, "gap", quantum_ns), needed(columns, "cpu"),
        ]);
        return new Gaps(detail, busy, gap, cpu);
    }

    get count(): number {
        return this.start.length;
    }

    /** Another column, decoded when first asked for; null if it is unknown. */
    column(name: string): Promise<Float64Array | null> {
        const found = this.asked.get(name) ?? optional(this.detail.columns, name, name === "recorded_idle" ? this.detail.quantum_ns : 1);
        this.asked.set(name, found);
        return found;
    }

    /** The time until the next timer at the start of each gap, NaN where none was armed; null if unknown. */
    async sleeps(): Promise<Float64Array | null> {
        this.asked.set("sleeps", this.asked.get("sleeps") ?? this.column("timer").then((timers) => timers && this.sleepsOf(timers)));
        return this.asked.get("sleeps")!;
    }

    /** A row's timer is 0 if it ended the gap, else 1 + zigzag(expiry − the last row's expiry). */
    private sleepsOf(timers: Float64Array): Float64Array {
        const { quantum_ns, offset_ns } = this.detail;
        let expiry = 0;
        return timers.map((timer, i) => {
            if (Number.isNaN(timer)) return NaN;
            const start = Math.round((this.start[i] - offset_ns) / quantum_ns);
            const zigzag = timer - 1;
            if (timer === 0) expiry = start + Math.round(this.length[i] / quantum_ns);
            else expiry += zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
            return (expiry - start) * quantum_ns;
        });
    }

    /** The gap of a CPU that starts at `time`, or null. */
    find(cpu: number, time: number): number | null {
        const range = this.cpus.find((range) => range.cpu === cpu);
        const i = range ? this.lastBefore(range, time, range.from) : -1;
        return range && i >= range.from && this.start[i] === time ? i : null;
    }

    /** The CPU that row `i` is of. */
    cpuOf(i: number): CpuRange {
        return this.cpus.find(({ from, to }) => from <= i && i < to)!;
    }

    /** The last gap of a CPU that starts at or before `time`; `from - 1` if none does. `hint` is where to begin. */
    lastBefore({ from, to }: CpuRange, time: number, hint: number): number {
        const { start } = this;
        let low = hint >= from && hint < to && start[hint] <= time ? hint : from - 1;
        let step = 1;
        while (low + step < to && start[low + step] <= time) {
            low += step;
            step *= 2;
        }
        let high = Math.min(to, low + step);
        while (high - low > 1) {
            const middle = (low + high) >> 1;
            if (start[middle] <= time) low = middle;
            else high = middle;
        }
        return low;
    }
}

/** A stay, or, if `count` is more than 1, what is known of several. */
export interface Stay {
    state: number;
    verdict: number;
    end: number;
    at: number;
    length: number;
    count: number;
}

/** The entries of `more`, with all times. */
class Entries {
    /** The first entry of each gap. */
    readonly at: Uint32Array;
    readonly heads: Uint16Array;
    /** When a stay began in its gap; of further stays their number; of their sum the running time. */
    readonly first: Float64Array;
    /** The length of a stay, or of further stays together; of their sum the delay. */
    readonly second: Float64Array;
    readonly ticks = new Map<number, number>();

    constructor(gaps: Gaps, costs: Costs, grid: Float64Array, counts: Float64Array, more: Float64Array) {
        const { quantum_ns, offset_ns, tick_period_ns: period } = gaps.detail;
        this.at = new Uint32Array(counts.length + 1);
        for (let i = 0; i < counts.length; i++) this.at[i + 1] = this.at[i] + counts[i];
        const total = this.at[counts.length];
        this.heads = new Uint16Array(total);
        this.first = new Float64Array(total);
        this.second = new Float64Array(total);
        // The last length by state and by what ended it.
        const lengths = new Float64Array(4 * 256);
        let p = 0;
        for (let i = 0; i < counts.length; i++) {
            const toTick = (((grid[i] - (gaps.start[i] - offset_ns)) % period) + period) % period || period;
            let [end, wait] = [0, 0];
            for (let e = this.at[i]; e < this.at[i + 1]; e++) {
                const head = more[p++];
                const [kind, isExplicit, state] = [head % 8, head % 16 >= 8, Math.floor(head / 64)];
                this.heads[e] = head;
                if (kind === REST) {
                    [this.first[e], this.second[e]] = [more[p++], more[p++] * quantum_ns];
                } else if (kind === REST_WORK) {
                    this.ticks.set(e, more[p++]);
                    [this.first[e], this.second[e]] = [more[p++] * quantum_ns, more[p++] * quantum_ns];
                } else {
                    const at = end + (isExplicit ? more[p++] * quantum_ns : wait);
                    const length = isExplicit ? more[p++] * quantum_ns
                        : kind === END.event ? gaps.length[i] - at
                        : kind === END.tick ? (at < toTick ? toTick - at : period - ((at - toTick) % period))
                        : lengths[4 * state + kind];
                    lengths[4 * state + kind] = length;
                    [this.first[e], this.second[e]] = [at, length];
                    end = at + length;
                    wait = costs.workNs(state, kind);
                }
            }
        }
    }
}

export class Course {
    readonly energy: Float64Array;
    readonly delay: Float64Array;

    private constructor(
        readonly gaps: Gaps,
        readonly costs: Costs,
        readonly state: Float64Array,
        readonly verdict: Float64Array,
        readonly forecast: Float64Array | null,
        private readonly entries: Entries,
    ) {
        const { count, length } = gaps;
        this.energy = new Float64Array(count);
        this.delay = new Float64Array(count);
        for (let i = 0; i < count; i++) {
            if (!this.isBroken(i)) {
                this.energy[i] = costs.stayUj(state[i], length[i], 1, END.event);
                this.delay[i] = costs.exitNs(state[i]);
                continue;
            }
            const { stays, work, delay } = this.stays(i);
            let energy = work * costs.runningMw * UJ_PER_MW_NS;
            for (const stay of stays) energy += costs.stayUj(stay.state, stay.length, stay.count, stay.end);
            this.energy[i] = energy;
            const last = stays[stays.length - 1];
            const overrun = last.at + last.length + costs.workNs(last.state, last.end) - length[i];
            this.delay[i] = delay ?? (last.end === END.event ? costs.exitNs(last.state) : Math.max(0, overrun));
        }
    }

    static async read(gaps: Gaps, facts: CourseFacts, machine: Machine): Promise<Course> {
        const { columns } = facts;
        const [state, verdict, counts, more, forecast, grid] = await Promise.all([
            needed(columns, "state"), needed(columns, "verdict"), needed(columns, "stays"), needed(columns, "more"),
            optional(columns, "forecast"), needed(gaps.detail.columns, "grid"),
        ]);
        const costs = new Costs(machine);
        return new Course(gaps, costs, state, verdict, forecast, new Entries(gaps, costs, grid, counts, more));
    }

    /** The stays of gap `i`; if there were many, the first ones and sums of the rest. */
    stays(i: number): { stays: Stay[]; work: number; ticks: number; delay: number | null } {
        if (!this.isBroken(i)) {
            const stay = { state: this.state[i], verdict: this.verdict[i], end: END.event, at: 0, length: this.gaps.length[i], count: 1 };
            return { stays: [stay], work: 0, ticks: 0, delay: null };
        }
        const { at, heads, first, second } = this.entries;
        const stays: Stay[] = [];
        let [work, ticks, end]: number[] = [0, 0, 0];
        let delay: number | null = null;
        for (let e = at[i]; e < at[i + 1]; e++) {
            const [kind, verdict, state] = [heads[e] % 8, (heads[e] >> 4) % 4, heads[e] >> 6];
            if (kind === REST_WORK) {
                [ticks, work, delay] = [this.entries.ticks.get(e)!, first[e], second[e]];
            } else if (kind === REST) {
                stays.push({ state, verdict, end: END.rest, at: end, length: second[e], count: first[e] });
            } else {
                stays.push({ state, verdict, end: kind, at: first[e], length: second[e], count: 1 });
                end = first[e] + second[e];
            }
        }
        return { stays, work, ticks, delay };
    }

    /** Whether gap `i` has more than one stay, or one that did not last. */
    isBroken(i: number): boolean {
        return this.entries.at[i] !== this.entries.at[i + 1];
    }

    totals(): { energy: number; delay: number } {
        const sum = (values: Float64Array) => values.reduce((sum, value) => sum + value, 0);
        return { energy: sum(this.energy), delay: sum(this.delay) };
    }
}

/** Time by state, summed up from gap to gap, so that the time in any stretch is one difference. */
export class Lane {
    private readonly sums: Float64Array[];

    /** `stays` calls back with the state and the length of each stay of a gap. */
    constructor(
        private readonly gaps: Gaps,
        readonly stateCount: number,
        private readonly stays: (i: number, add: (state: number, at: number, length: number) => void) => void,
    ) {
        this.sums = Array.from({ length: stateCount }, () => new Float64Array(gaps.count + 1));
        let row = 0;
        const add = (state: number, _at: number, length: number) => {
            this.sums[state][row + 1] += length;
        };
        for (row = 0; row < gaps.count; row++) {
            for (const sum of this.sums) sum[row + 1] = sum[row];
            stays(row, add);
        }
    }

    static ofCourse(course: Course, stateCount: number): Lane {
        const { gaps } = course;
        let [row, stays]: [number, Stay[]] = [-1, []];
        return new Lane(gaps, stateCount, (i, add) => {
            if (!course.isBroken(i)) {
                add(course.state[i], 0, gaps.length[i]);
                return;
            }
            if (row !== i) [row, stays] = [i, course.stays(i).stays];
            // Where the rest of many stays was is not known, only how long they were: one after the other.
            let at = 0;
            for (const stay of stays) {
                if (stay.end !== END.rest) at = stay.at;
                add(stay.state, at, stay.length);
                at += stay.length;
            }
        });
    }

    /** The time in each state from the beginning of the CPU's row `from` until `time`; `i` = `lastBefore(time)`. */
    until(i: number, from: number, time: number, out: Float64Array): void {
        const { gaps, sums } = this;
        if (i < from) {
            out.fill(0);
            return;
        }
        const isWhole = time >= gaps.start[i] + gaps.length[i];
        for (let state = 0; state < sums.length; state++) out[state] = sums[state][isWhole ? i + 1 : i] - sums[state][from];
        if (isWhole) return;
        const passed = time - gaps.start[i];
        this.stays(i, (state, at, length) => {
            out[state] += Math.max(0, Math.min(length, passed - at));
        });
    }
}

/** Misses: the gaps that the kernel would count as too deep or too shallow, with their regret at a price. */
export class Misses {
    readonly regret: Float64Array;
    /** Sums of the regret of gaps too deep, and too shallow, before row i. */
    readonly deep: Float64Array;
    readonly shallow: Float64Array;
    /** The numbers of both, because a miss without regret must not vanish. */
    readonly counts: Uint32Array;
    private readonly worst: Int32Array;

    constructor(readonly course: Course, limit: Float64Array | null, lambdaMw: number) {
        const { gaps, costs, energy, delay, verdict } = course;
        const { count } = gaps;
        this.regret = new Float64Array(count);
        this.deep = new Float64Array(count + 1);
        this.shallow = new Float64Array(count + 1);
        this.counts = new Uint32Array(count + 1);
        this.worst = new Int32Array(Math.ceil(count / BLOCK)).fill(-1);
        for (let i = 0; i < count; i++) {
            const length = gaps.length[i];
            const right = costs.right(length, limit?.[i] ?? NaN, lambdaMw);
            // Rounding may leave a trifle below zero.
            const regret = Math.max(0, energy[i] + lambdaMw * delay[i] * UJ_PER_MW_NS - costs.gapUj(right, length, lambdaMw));
            this.regret[i] = regret;
            this.deep[i + 1] = this.deep[i] + (verdict[i] & 1 ? regret : 0);
            this.shallow[i + 1] = this.shallow[i] + (verdict[i] === 2 ? regret : 0);
            this.counts[i + 1] = this.counts[i] + (verdict[i] ? 1 : 0);
            const block = Math.floor(i / BLOCK);
            if (verdict[i] && (this.worst[block] < 0 || regret > this.regret[this.worst[block]])) this.worst[block] = i;
        }
    }

    /** The miss with the most regret among rows [from, to); -1 if there is none. */
    worstIn(from: number, to: number): number {
        let worst = -1;
        const consider = (i: number) => {
            if (i >= 0 && this.course.verdict[i] && (worst < 0 || this.regret[i] > this.regret[worst])) worst = i;
        };
        for (let i = from; i < to;) {
            if (i % BLOCK === 0 && i + BLOCK <= to) {
                consider(this.worst[i / BLOCK]);
                i += BLOCK;
            } else consider(i++);
        }
        return worst;
    }

    /** The rows of the worst misses, worst first. */
    ranking(count: number): number[] {
        const rows: number[] = [];
        for (let i = 0; i < this.regret.length; i++) if (this.course.verdict[i]) rows.push(i);
        return rows.sort((a, b) => this.regret[b] - this.regret[a]).slice(0, count);
    }
}

const BLOCK = 64;
