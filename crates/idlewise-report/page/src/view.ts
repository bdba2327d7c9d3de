// What is looked at: chosen once, seen by every section.

import type { Facts, Front, Governor, Log, Machine, Result, Verdict } from "./format";

export interface View {
    /** null: all logs together. */
    log: number | null;
    machine: number;
    governor: number;
    /** The governor to compare with. */
    against: number | null;
    /** The price of delay, as a share of the machine's full price. */
    share: number;
}

type Listener = (view: View, changed: Set<keyof View>) => void;

export class Model {
    readonly view: View;
    private readonly listeners: Listener[] = [];

    constructor(readonly facts: Facts) {
        const { logs, machines, prices } = facts;
        const price = prices[Math.min(1, prices.length - 1)];
        const share = price?.share ?? (price?.price_mw ?? 0) / (machines[0]?.full_price_mw || 1);
        // The recording's own machine, if it was replayed.
        const machine = Math.max(0, machines.findIndex(({ id }) => id === logs[0]?.machine));
        this.view = { log: logs.length === 1 ? 0 : null, machine, governor: 0, against: null, share };
        this.settle(false);
        this.view.governor = this.inUse().governor;
    }

    /** A log with a machine of its own was replayed on that one only: one choice takes the other along. */
    private settle(isMachineAsked: boolean): void {
        const { log, machine } = this.view;
        if (this.facts.results.some((result) => result.log === log && result.machine === machine)) return;
        const found = this.facts.results.find((result) => (isMachineAsked ? result.machine === machine : result.log === log));
        if (found) Object.assign(this.view, { log: found.log, machine: found.machine });
    }

    /** What the verdict about the machine says. */
    private verdict(): Verdict | undefined {
        return this.facts.verdicts.find(({ machine }) => machine === this.view.machine);
    }

    /** The governor that the verdict compares others with, and whether it was in use while the logs were recorded. */
    inUse(): { governor: number; isRecorded: boolean } {
        const { base, is_in_use } = this.verdict() ?? { base: null, is_in_use: false };
        return { governor: base ?? this.proper()[0] ?? 0, isRecorded: is_in_use };
    }

    /** What the first numbers compare: what the verdict does, unless somebody chose a governor or what to hold against it.
     *  `other` is missing if there is no second governor. */
    contest(): { base: Result | undefined; other: Result | undefined } {
        const results = this.results();
        const of = (index: number | null | undefined) => results.find(({ governor }) => governor === index);
        const base = of(this.view.against ?? this.inUse().governor);
        const chosen = of(this.view.governor);
        return { base, other: chosen !== base ? chosen : of(this.verdict()?.other) };
    }

    /** The logs that are looked at: one, or all that were replayed on the machine. */
    get logs(): Log[] {
        const { log, machine } = this.view;
        const isOn = (log: number) => this.facts.results.some((result) => result.log === log && result.machine === machine);
        return log === null ? this.facts.logs.filter((_, index) => isOn(index)) : [this.facts.logs[log]];
    }

    /** The governors proper, without bounds and the oracle. */
    proper(): number[] {
        const roles = this.facts.governors.map(({ role }) => role);
        return roles.flatMap((role, i) => (role === "governor" || role === "file" ? [i] : []));
    }

    subscribe(listener: Listener): void {
        this.listeners.push(listener);
    }

    set(change: Partial<View>): void {
        const before = { ...this.view };
        Object.assign(this.view, change);
        this.settle(change.machine !== undefined);
        if (this.view.against === this.view.governor) {
            this.view.against = change.governor !== undefined && before.against !== null ? before.governor : null;
            if (this.view.against === this.view.governor) this.view.against = null;
        }
        const changed = new Set((Object.keys(this.view) as (keyof View)[]).filter((key) => this.view[key] !== before[key]));
        if (changed.size) for (const listener of this.listeners) listener(this.view, changed);
    }

    get machine(): Machine {
        return this.facts.machines[this.view.machine];
    }

    governor(index: number): Governor {
        return this.facts.governors[index];
    }

    get lambdaMw(): number {
        return this.view.share * this.machine.full_price_mw;
    }

    /** The price nearest to the view's: what was computed in advance is known for these only. */
    get price(): number {
        const full = this.machine.full_price_mw;
        const distance = this.facts.prices.map(({ share, price_mw }) =>
            Math.abs(Math.sqrt(share ?? (price_mw ?? 0) / full) - Math.sqrt(this.view.share)));
        return distance.indexOf(Math.min(...distance));
    }

    /** The results of the view's log and machine, oracle excepted: that is `front`. */
    results(): Result[] {
        const { log, machine } = this.view;
        return this.facts.results.filter((result) => result.log === log && result.machine === machine
            && this.facts.governors[result.governor].role !== "oracle");
    }

    get front(): Front | undefined {
        const { log, machine } = this.view;
        return this.facts.fronts.find((front) => front.log === log && front.machine === machine);
    }

    cost({ energy_uj, delay_ns }: { energy_uj: number; delay_ns: number }): number {
        return energy_uj + this.lambdaMw * delay_ns * 1e-6;
    }

    /** The oracle at the view's price. */
    get oracle(): Front["points"][number] | undefined {
        return this.front?.points.reduce<Front["points"][number] | undefined>((best, point) =>
            (best && this.cost(best) <= this.cost(point) ? best : point), undefined);
    }

    /** Regret as a share of the oracle's cost; NaN if there is no oracle. */
    regret(result: Result): number {
        const oracle = this.oracle;
        const least = oracle ? this.cost(oracle) : NaN;
        return least > 0 ? this.cost(result) / least - 1 : NaN;
    }

    logName(log: number | null): string {
        if (log !== null) return this.facts.logs[log].name;
        const [all, on] = [this.facts.logs.length, this.logs];
        return on.length === 1 ? on[0].name : on.length === all ? `all ${all} logs` : `${on.length} of ${all} logs`;
    }
}

/** The delay that this share of the wake-ups does not exceed. */
export function quantileOf({ delays }: Result, share: number): number | null {
    return delays.find(({ quantile }) => quantile >= share - 1e-12)?.ns ?? null;
}

/** A price as people say it. */
export function shareText(share: number): string {
    const known: [number, string][] = [[0, "0"], [0.25, "¼"], [0.5, "½"], [1, "1"], [2, "2"], [4, "4"]];
    return known.find(([value]) => Math.abs(value - share) < 1e-9)?.[1] ?? share.toFixed(share < 0.1 ? 3 : 2);
}
