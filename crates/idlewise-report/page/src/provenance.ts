// Provenance: on what the figures rest, what to doubt, and the command that makes them again.

import { copyButton } from "./copy";
import { el, shown } from "./dom";
import type { BasisKind, Doubt, Facts, Machine } from "./format";
import { section, type Section } from "./section";
import { SortedTable } from "./table";
import { energy, power, time } from "./units";

const MEANINGS: [BasisKind, string][] = [
    ["measured", "taken from hardware that ran"],
    ["recorded", "in the recording"],
    ["documented", "published by the vendor or the kernel"],
    ["calibrated", "fitted to measurements"],
    ["simulated", "computed by replaying the recording"],
    ["assumed", "not known; a stated assumption"],
];

export function command(text: string): HTMLElement {
    return el("p", { class: "command" }, el("code", {}, shown(text)), copyButton("copy the command", () => text));
}

export function provenance(facts: Facts): Section {
    const made = section("provenance", "Provenance", "");
    const { notes } = facts;
    made.body.append(el("h3", {}, "The command that makes this page again"), command(facts.command));
    if (notes.basis.length) {
        made.body.append(el("h3", {}, "What the figures rest on"),
            el("dl", { class: "facts" }, ...MEANINGS.flatMap(([kind, meaning]) => {
                const texts = notes.basis.filter(({ basis }) => basis === kind).map(({ text }) => shown(text));
                return texts.length ? [el("dt", {}, el("span", { class: `tag ${kind}` }, kind)),
                    el("dd", {}, texts.join(", "), el("span", { class: "meaning" }, ` (${meaning})`))] : [];
            })));
    }
    const doubts = [...notes.doubts, ...facts.logs.flatMap((log) => log.doubts.map((doubt) => ({ ...doubt, about: doubt.about || log.name })))];
    made.body.append(...doubtLists(doubts));
    for (const machine of facts.machines) made.body.append(machineTable(machine).node, el("p", { class: "how" }, `Source: ${shown(machine.source)}`));
    const items = [{ name: "program", value: facts.program }, ...facts.provenance];
    made.body.append(el("h3", {}, "Versions and inputs"), el("dl", { class: "facts" },
        ...items.flatMap(({ name, value }) => [el("dt", {}, shown(name)), el("dd", {}, shown(value))])));
    return made;
}

function doubtLists(doubts: Doubt[]): HTMLElement[] {
    const seen = new Set<string>();
    const unique = doubts.filter(({ text, about }) => {
        const key = `${about}\n${text}`;
        return !seen.has(key) && seen.add(key);
    });
    const list = (doubts: Doubt[]) => el("ul", {}, ...doubts.map(({ text, about }) =>
        el("li", {}, about && !text.startsWith(about) ? el("strong", {}, `${shown(about)}: `) : null, shown(text))));
    const major = unique.filter((doubt) => !doubt.is_minor);
    const minor = unique.filter((doubt) => doubt.is_minor);
    return [
        el("h3", {}, "Doubts"),
        major.length ? list(major) : el("p", {}, "None that would change what you conclude."),
        ...(minor.length ? [el("details", {}, el("summary", {}, `${minor.length} minor`), list(minor))] : []),
    ];
}

function machineTable(machine: Machine): SortedTable {
    const column = (name: string, about: string) => ({ name, unit: "", about, better: null, is_text: false });
    const columns = [{ ...column("state", ""), is_text: true }, column("exit latency", "the worst case, which every wake-up waits for"),
        column("target residency", "the shortest stay that pays"), column("power", "while in the state"),
        column("transition", "energy of entering and leaving"), { ...column("basis", "of the power"), is_text: true }];
    const table = new SortedTable(`Machine ${machine.id}: ${machine.title}`, columns, null);
    return table.show(machine.states.map((state) => ({
        cells: [
            { text: state.name, value: state.name },
            { text: time(state.exit_latency_ns), value: state.exit_latency_ns },
            { text: time(state.target_residency_ns), value: state.target_residency_ns },
            { text: power(state.power_mw), value: state.power_mw },
            { text: energy(state.transition_uj), value: state.transition_uj },
            { text: `latency ${state.latency_basis}, power ${state.power_basis}`, value: state.power_basis },
        ],
    })));
}
