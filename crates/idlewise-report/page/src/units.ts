// Numbers as text. One rule everywhere: three significant digits and a unit, with a narrow space between.

const SPACE = "\u202f";

/** A count with its thousands apart. */
export function count(n: number): string {
    return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, SPACE);
}

/** Three significant digits, without an exponent where that can be read. */
export function significant(value: number, digits = 3): string {
    if (!Number.isFinite(value)) return "–";
    if (value === 0) return "0";
    const magnitude = Math.floor(Math.log10(Math.abs(value)));
    if (magnitude >= 9 || magnitude < -6) return value.toExponential(digits - 1);
    const decimals = Math.max(0, digits - 1 - magnitude);
    const text = value.toFixed(Math.min(decimals, 12));
    return magnitude >= 3 ? text.replace(/^(-?)(\d+)/, (_, sign, whole) => sign + count(Number(whole))) : text;
}

function scaled(value: number, steps: [number, string][]): string {
    const size = Math.abs(value);
    const [step, unit] = steps.find(([step]) => size >= step) ?? steps[steps.length - 1];
    return `${significant(value / step)}${SPACE}${unit}`;
}

const TIMES: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

export function time(ns: number): string {
    if (!Number.isFinite(ns)) return "–";
    if (ns !== 0 && Math.abs(ns) < 1000) return `${Math.round(ns * 10) / 10}${SPACE}ns`;
    return ns === 0 ? "0" : scaled(ns, TIMES);
}

/** A time to the nanosecond: 1.203 456 789 s. */
export function exactTime(ns: number): string {
    if (!Number.isFinite(ns)) return "–";
    if (ns === 0) return "0";
    if (Math.abs(ns) < 1e3) return `${Math.round(ns)}${SPACE}ns`;
    const [step, unit] = TIMES.find(([step]) => Math.abs(ns) >= step)!;
    const digits = Math.round(Math.log10(step));
    const [whole, rest] = (ns / step).toFixed(digits).split(".");
    const groups = (rest ?? "").replace(/0+$/, "").match(/.{1,3}/g) ?? [];
    return `${count(Number(whole))}${groups.length ? "." + groups.join(SPACE) : ""}${SPACE}${unit}`;
}

export function energy(uj: number): string {
    if (!Number.isFinite(uj)) return "–";
    return uj === 0 ? "0" : scaled(uj, [[1e6, "J"], [1e3, "mJ"], [1, "µJ"], [1e-3, "nJ"]]);
}

export function power(mw: number): string {
    if (!Number.isFinite(mw)) return "–";
    return mw === 0 ? "0" : scaled(mw, [[1e3, "W"], [1, "mW"], [1e-3, "µW"]]);
}

/** A ratio in percent, with one decimal below 100. */
export function percent(ratio: number): string {
    if (!Number.isFinite(ratio)) return "–";
    const value = ratio * 100;
    const size = Math.abs(value);
    if (size > 0 && size < 0.1) return `${value < 0 ? "−" : ""}<0.1${SPACE}%`;
    return `${size >= 100 ? count(value) : value.toFixed(value === 0 ? 0 : 1)}${SPACE}%`;
}

export function signed(text: string, value: number): string {
    return value > 0 ? `+${text}` : text.replace("-", "−");
}
