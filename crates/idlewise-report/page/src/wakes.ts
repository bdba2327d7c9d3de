// Wake reasons, and what a store could have woken: two small tables.

import { el, shown } from "./dom";
import { section, unknown, type Section } from "./section";
import { SortedTable } from "./table";
import { count, percent, time } from "./units";
import type { Model } from "./view";

export function wakes(model: Model): Section {
    const made = section("wakes", "What ended the gaps", "");
    const number = (name: string, about: string) => ({ name, unit: "", about, better: null, is_text: false });
    const table = new SortedTable("Wake reasons", [{ ...number("woken by", ""), is_text: true }, number("gaps", ""), number("share", "of gaps"),
        number("idle time", "of these gaps together"), number("share of time", "of idle time"), number("mean gap", "")], { column: 1, isDown: true });
    const show = () => {
        const { log } = model.view;
        const { logs } = model.facts;
        const sums = new Map<string, { count: number; idle: number }>();
        for (const wake of model.facts.wakes) {
            if (log !== null && wake.log !== log) continue;
            const sum = sums.get(wake.reason) ?? { count: 0, idle: 0 };
            sums.set(wake.reason, { count: sum.count + wake.count, idle: sum.idle + wake.idle_ns });
        }
        const lacking = logs.filter((each, i) => (log === null || i === log) && !each.knows.wakes).map(({ name }) => shown(name));
        const all = [...sums.values()].reduce((all, { count, idle }) => ({ count: all.count + count, idle: all.idle + idle }), { count: 0, idle: 0 });
        made.body.replaceChildren(
            ...(lacking.length ? [unknown(`what ended the gaps of ${lacking.join(", ")}: the recording has no events that tell.`)] : []),
            ...(sums.size ? [table.node] : []));
        table.show([...sums].map(([reason, sum]) => ({ cells: [
            { text: reason, value: reason },
            { text: count(sum.count), value: sum.count },
            { text: percent(sum.count / all.count), value: (sum.count / all.count) * 100 },
            { text: time(sum.idle), value: sum.idle },
            { text: percent(sum.idle / all.idle), value: (sum.idle / all.idle) * 100 },
            { text: time(sum.idle / sum.count), value: sum.idle / sum.count },
        ] })));
        made.basis(sums.size ? "Recorded." : "");
    };
    model.subscribe(show);
    show();
    return made;
}

/** Promotions and free rides; null if no machine has them. */
export function promotions(model: Model): Section | null {
    const has = model.facts.results.some(({ promotion_count, free_ipi_count }) => promotion_count || free_ipi_count);
    if (!has) return null;
    const made = section("promotions", "Promotions and free rides",
        "A promotion is a stay that the CPU itself moved to a deeper state. A free ride is a wake-up by interrupt that a mere store would have done, because the CPU was watching memory.");
    const number = (name: string, better: "more" | null) => ({ name, unit: "", about: "", better, is_text: false });
    const table = new SortedTable("Promotions and free rides", [{ ...number("governor", null), is_text: true }, number("promotions", null),
        number("free rides", "more"), number("share of gaps", "more")], { column: 2, isDown: true });
    const none = el("p", {}, "None on this machine.");
    made.body.append(table.node, none);
    const show = () => {
        const results = model.results().filter(({ promotion_count, free_ipi_count }) => promotion_count || free_ipi_count);
        table.node.hidden = results.length === 0;
        none.hidden = results.length > 0;
        table.show(results.map(({ governor, promotion_count, free_ipi_count, gap_count }) => {
            const { name } = model.governor(governor);
            const share = free_ipi_count === null ? null : free_ipi_count / gap_count;
            return { cells: [
                { text: name, value: name },
                { text: promotion_count === null ? "–" : count(promotion_count), value: promotion_count },
                { text: free_ipi_count === null ? "–" : count(free_ipi_count), value: free_ipi_count },
                { text: share === null ? "–" : percent(share), value: share === null ? null : share * 100 },
            ] };
        }));
        made.basis("Simulated.");
    };
    model.subscribe(show);
    show();
    return made;
}
