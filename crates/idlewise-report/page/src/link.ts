// The address says what is looked at, so that `report.html#log=…&governor=menu&against=teo` in a mail shows others the
// same. Names stand for themselves, because indices change from page to page.

import type { Model, View } from "./view";

type Named = "log" | "machine" | "governor" | "against";

let gap = "";
let write = () => {};

export function followLink(model: Model): void {
    const { facts, view } = model;
    const names: Record<Named, string[]> = {
        log: facts.logs.map(({ name }) => name),
        machine: facts.machines.map(({ id }) => id),
        governor: facts.governors.map(({ name }) => name),
        against: facts.governors.map(({ name }) => name),
    };
    const keys = Object.keys(names) as Named[];
    const asked = new URLSearchParams(location.hash.slice(1));
    const change: Partial<View> = {};
    for (const key of keys) {
        const index = names[key].indexOf(asked.get(key) ?? "");
        if (index >= 0) change[key] = index;
    }
    const share = Number(asked.get("lambda") ?? NaN);
    if (share >= 0 && share <= 4) change.share = share;
    model.set(change);
    gap = asked.get("gap") ?? "";

    write = () => {
        const link = new URLSearchParams();
        for (const key of keys) {
            const index = view[key];
            if (index !== null) link.set(key, names[key][index]);
        }
        link.set("lambda", String(Math.round(view.share * 1e4) / 1e4));
        if (gap) link.set("gap", gap);
        history.replaceState(null, "", `#${link}`);
    };
    model.subscribe(() => write());
    // A link to a section moves there, and the address says again what is looked at.
    addEventListener("hashchange", () => (location.hash.includes("=") ? location.reload() : write()));
}

/** The gap that the address names: its CPU, and its start in nanoseconds after the log's first gap. */
export function linkedGap(): { cpu: number; start: number } | null {
    const [, cpu, start] = /^(\d+)-(\d+)$/.exec(gap) ?? [];
    return start === undefined ? null : { cpu: Number(cpu), start: Number(start) };
}

export function linkGap(chosen: { cpu: number; start: number } | null): void {
    const text = chosen ? `${chosen.cpu}-${chosen.start}` : "";
    if (text === gap) return;
    gap = text;
    write();
}
