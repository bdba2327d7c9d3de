// What the report puts into its page. The authority is the documentation of the Rust module
// `idlewise_report::page`, which writes it: change both in one commit.

export type BasisKind = "measured" | "simulated" | "calibrated" | "assumed" | "recorded" | "documented";

export interface Facts {
    schema: 1;
    /** "figures": only `charts` and `tables`, of a study or of saved measurements. */
    kind: "replay" | "figures";
    title: string;
    program: string;
    /** What makes this page again, quoted for a shell. */
    command: string;
    logs: Log[];
    machines: Machine[];
    governors: Governor[];
    /** Prices of delay: a share of each machine's full price, or, if that is null, milliwatts. */
    prices: { name: string; share: number | null; price_mw?: number | null }[];
    verdicts: Verdict[];
    results: Result[];
    fronts: Front[];
    regret: Regret[];
    /** JSON: CpuRow[]. */
    cpus: Column | null;
    wakes: { log: number; reason: string; count: number; idle_ns: number }[];
    reasons: string[];
    /** Bin b of `regret` holds gaps of [edges_ns[b], edges_ns[b + 1]). */
    edges_ns: number[];
    details: Detail[];
    courses: Course[];
    tables: Table[];
    charts: Chart[];
    notes: { basis: { basis: BasisKind; text: string }[]; doubts: Doubt[] };
    provenance: { name: string; value: string }[];
}

export interface Log {
    name: string;
    gap_count: number;
    cpu_count: number;
    first_ns: number;
    span_ns: number;
    idle_ns: number;
    kernel: string | null;
    hz: number;
    machine: string | null;
    /** The states of the recorded machine. */
    state_names: string[];
    governor: string | null;
    sha256: string | null;
    doubts: Doubt[];
    knows: { timers: boolean; wakes: boolean; states: boolean; ticks: boolean };
}

export interface Doubt {
    text: string;
    is_minor: boolean;
    about: string;
}

export interface MachineState {
    name: string;
    exit_latency_ns: number;
    target_residency_ns: number;
    power_mw: number;
    transition_uj: number;
    is_polling: boolean;
    is_disabled?: boolean;
    power_basis: BasisKind;
    latency_basis: BasisKind;
}

export interface Machine {
    id: string;
    title: string;
    source: string;
    /** The price of delay that counts as 1. */
    full_price_mw: number;
    running_mw: number;
    tick_work_ns: number;
    latency_limit_ns?: number | null;
    states: MachineState[];
    doubts: Doubt[];
}

export interface Governor {
    name: string;
    about: string;
    role: "governor" | "bound" | "oracle" | "file";
}

export interface Verdict {
    machine: number;
    /** Whom the sentence compares: governors, null if there is none. */
    base: number | null;
    other: number | null;
    /** Whether base was in use while the logs were recorded. */
    is_in_use: boolean;
    sentence: string;
    facts: { text: string; basis: BasisKind }[];
    limits: string[];
}

export interface Result {
    /** null: all logs together. */
    log: number | null;
    machine: number;
    governor: number;
    energy_uj: number;
    delay_ns: number;
    idle_ns: number;
    gap_count: number;
    too_deep_count: number;
    too_shallow_count: number;
    /** Decisions for a disabled state, or one beyond the latency limit. */
    forbidden_count: number;
    tick_wake_count: number;
    delays: { quantile: number; ns: number }[];
    states: { entry_count: number; stay_ns: number; too_deep_count: number; too_shallow_count: number }[];
    promotion_count: number | null;
    free_ipi_count: number | null;
}

/** The oracle: for each price the cheapest that can be done. */
export interface Front {
    log: number | null;
    machine: number;
    points: { lambda_mw: number; energy_uj: number; delay_ns: number }[];
}

export interface Regret {
    log: number | null;
    machine: number;
    governor: number;
    price: number;
    /** JSON: RegretCell[]. */
    cells: Column;
}

/** Gaps of a bin for which `chosen` was the first decision and `right` would have cost least. */
export type RegretCell = [bin: number, chosen: number, right: number, count: number, regret_uj: number];

export interface CpuRow {
    log: number;
    cpu: number;
    machine: number;
    governor: number;
    gap_count: number;
    idle_ns: number;
    /** By price: regret as a share of the oracle's cost. */
    regret_share: (number | null)[];
}

export interface Detail {
    log: number;
    kept_count: number;
    gap_count: number;
    is_sampled: boolean;
    how: string;
    /** The unit of the columns' times, except `grid` and `limit`, which are in nanoseconds. */
    quantum_ns: number;
    tick_period_ns: number;
    /** From the log's first_ns to the start of the first row, from which all rows' times count. */
    offset_ns: number;
    /** By CPU, then by time:
     *  cpu; busy (from the end of the CPU's previous row, or from the first row's start, to the start); gap;
     *  timer (the next one's expiry, 0 if it ended the gap: course.ts); grid (a boundary of the CPU's ticks, modulo the period, as replayed); flags;
     *  reason; recorded_state; recorded_idle (minus the gap); limit; skipped (gaps left out before this one).
     *  A missing column is unknown. */
    columns: Columns;
}

/** Bits of `flags`. */
export const FLAG = { tickStopped: 1, ranTask: 2, ranTaskKnown: 4, tickKnown: 8, gridKnown: 16 } as const;

export interface Course {
    log: number;
    machine: number;
    governor: number;
    /** state (the first decision), verdict (1 a stay too deep, 2 one too shallow, 3 both), forecast (16 · log₂ ns),
     *  stays (entries of the gap in `more`; 0: one stay, which the event ended), more (course.ts). */
    columns: Columns;
}

export interface Column {
    id: number;
    /** bytes: one per value. u: varints. z: varints, zigzag. delta: the same of differences. json: a document. */
    encoding: "bytes" | "u" | "z" | "delta" | "json";
    /** 0 means absent; other values are stored one larger. */
    null: boolean;
}

export type Columns = { [name: string]: Column | undefined };

export interface TableColumn {
    name: string;
    unit: string;
    about: string;
    better: "less" | "more" | null;
    is_text: boolean;
}

export interface Cell {
    text: string;
    value: number | string | null;
}

export interface Table {
    id: string;
    title: string;
    columns: TableColumn[];
    rows: Cell[][];
    notes: string[];
}

export interface Axis {
    name: string;
    unit: string;
    is_log: boolean;
}

export type Chart = { id: string; title: string; about: string; basis: BasisKind | null; command: string | null } & (
    | { kind: "tornado"; unit: string; base: number; base_name: string; rows: TornadoRow[] }
    | { kind: "quantiles"; unit: string; is_log: boolean; series: { name: string; points: { quantile: number; value: number }[] }[] }
    | { kind: "intervals"; unit: string; is_log: boolean; about_interval: string; rows: IntervalRow[] }
    | { kind: "lines"; x: Axis; y: Axis; series: { name: string; points: LinePoint[] }[] }
);

export interface TornadoRow {
    name: string;
    low: number;
    high: number;
    low_name: string;
    high_name: string;
}

export interface IntervalRow {
    name: string;
    group: string;
    middle: number;
    low: number;
    high: number;
}

export interface LinePoint {
    x: number;
    y: number;
    low?: number;
    high?: number;
}
