// What a stay, a gap and a delay cost: the formulas of crates/idlewise-sim/src/cost.rs.

import type { Machine } from "./format";

/** A milliwatt for a nanosecond is a picojoule. */
export const UJ_PER_MW_NS = 1e-6;

export const END = { event: 0, tick: 1, pollLimit: 2, promotion: 3, rest: 7 } as const;
export const END_NAMES = ["wake event", "tick", "poll limit", "promotion"];

export class Costs {
    private readonly machine: Machine;
    private readonly enabled: number[];

    constructor(machine: Machine) {
        this.machine = machine;
        this.enabled = machine.states.flatMap((state, i) => (state.is_disabled ? [] : [i]));
    }

    /** `count` stays of `state`, together `length_ns` long, and what follows them: an exit, a tick's work. */
    stayUj(state: number, lengthNs: number, count: number, end: number): number {
        const { power_mw, transition_uj } = this.machine.states[state];
        const after = this.workNs(state, end) * count * this.machine.running_mw;
        return (power_mw * lengthNs + after) * UJ_PER_MW_NS + transition_uj * count;
    }

    /** The time at running power after a stay, before the governor is asked again. */
    workNs(state: number, end: number): number {
        const exit = this.machine.states[state].exit_latency_ns;
        if (end === END.tick) return exit + this.machine.tick_work_ns;
        return end === END.promotion ? exit : 0;
    }

    get runningMw(): number {
        return this.machine.running_mw;
    }

    exitNs(state: number): number {
        return this.machine.states[state].exit_latency_ns;
    }

    /** A whole gap in one state, with the delay at its end. */
    gapUj(state: number, gapNs: number, lambdaMw: number): number {
        return this.stayUj(state, gapNs, 1, END.event) + lambdaMw * this.exitNs(state) * UJ_PER_MW_NS;
    }

    /** The states that a limit on the exit latency allows; the shallowest if it allows none. */
    allowed(limitNs: number): number[] {
        const limit = Math.min(Number.isNaN(limitNs) ? Infinity : limitNs, this.machine.latency_limit_ns ?? Infinity);
        if (limit === Infinity) return this.enabled;
        const within = this.enabled.filter((i) => this.exitNs(i) <= limit);
        return within.length ? within : [this.enabled[0] ?? 0];
    }

    /** The cheapest state for a gap whose length is known. */
    right(gapNs: number, limitNs: number, lambdaMw: number): number {
        let best = 0;
        let least = Infinity;
        for (const state of this.allowed(limitNs)) {
            const cost = this.gapUj(state, gapNs, lambdaMw);
            // Equal: the state with less power, which is the deeper one.
            if (cost <= least) [best, least] = [state, cost];
        }
        return best;
    }
}
