// Provenance: the command that makes the page again, and folded below it on what the figures rest.

import { copyButton } from "./copy";
import { el, shown } from "./dom";
import type { BasisKind, Facts, Machine } from "./format";
import { section, type Section } from "./section";
import { SortedTable } from "./table";
import { energy, power, time } from "./units";
import { grouped } from "./verdict";

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
    const basis = MEANINGS.flatMap(([kind, meaning]) => {
        const texts = facts.notes.basis.filter(({ basis }) => basis === kind).map(({ text }) => shown(text));
        return texts.length ? [el("dt", {}, el("span", { class: `tag ${kind}` }, kind)),
            el("dd", {}, texts.join(", "), el("span", { class: "meaning" }, ` (${meaning})`))] : [];
    });
    // What several logs share is listed once.
    const inputs = grouped(facts.provenance.filter(({ name }) => name !== "program").map(({ name, value }) => {
        const log = facts.logs.find((log) => name.startsWith(`${log.name}: `))?.name ?? "";
        return [`${log ? name.slice(log.length + 2) : name}\n${value}`, log];
    }), facts.logs.length);
    made.body.append(command(facts.command), el("details", {}, el("summary", {}, "Basis, machines, versions and inputs"),
        ...(basis.length > 0 ? [el("h3", {}, "What the figures rest on"), el("dl", { class: "facts" }, ...basis)] : []),
        ...facts.machines.map((machine) => machineTable(machine).node),
        el("h3", {}, "Versions and inputs"),
        el("dl", { class: "facts" }, el("dt", {}, "program"), el("dd", {}, shown(facts.program)), ...inputs.flatMap(([text, about]) => {
            const [name, value] = text.split("\n");
            return [el("dt", {}, shown(name)), el("dd", {}, shown(value), about && el("span", { class: "meaning" }, ` (${shown(about)})`))];
        }))));
    return made;
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
