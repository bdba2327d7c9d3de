// The verdict: what somebody with fifteen seconds reads. First three numbers, then the sentence, and folded below it
// everything that limits it, once.

import { el, shown } from "./dom";
import type { Doubt, Facts, Result, Verdict } from "./format";
import { section, type Section } from "./section";
import { energy, percent, signed, significant, time } from "./units";
import { quantileOf, shareText, type Model } from "./view";

/** Energy, p99 and regret of one governor instead of another, which is usually the governor in use. */
export function numbers(model: Model): HTMLElement {
    const node = el("div", { class: "numbers" });
    const show = () => {
        const { base, other } = model.contest();
        node.hidden = !base;
        if (!base) return;
        const name = (result: Result) => shown(model.governor(result.governor).name);
        const { governor, isRecorded } = model.inUse();
        const isInUse = isRecorded && governor === base.governor;
        const powers = new Set(model.machine.states.map(({ power_basis }) => power_basis));
        const item = (title: string, value: (result: Result) => number, text: (value: number) => string, change: (now: number, before: number) => string) =>
            [el("div", {}, el("dt", {}, title), ...(other
                ? [el("dd", { class: "change" }, change(value(other), value(base))), el("dd", {}, `${text(value(base))} → ${text(value(other))}`)]
                : [el("dd", { class: "change" }, text(value(base)))]))];
        const points = (now: number, before: number) => {
            const by = (now - before) * 100;
            return Math.abs(by) < 0.05 ? "same" : Number.isFinite(by) ? `${signed(by.toFixed(1), by)}\u202fpoints` : "–";
        };
        node.replaceChildren(
            el("p", { class: "sentence" }, el("strong", {}, name(other ?? base)), other ? ` instead of ${name(base)}` : "", isInUse ? ", the governor in use" : ""),
            el("dl", {}, ...item(`energy${powers.has("assumed") ? ", assumed power" : ""}`, (result) => result.energy_uj, energy, relative),
                ...item("p99 of delays", (result) => quantileOf(result, 0.99) ?? NaN, time, relative),
                ...item(`regret at λ=${shareText(model.view.share)}`, (result) => model.regret(result), percent, points)));
    };
    model.subscribe(show);
    show();
    return node;
}

function relative(now: number, before: number): string {
    const ratio = now / before;
    if (now === before || Math.abs(ratio - 1) < 0.0005) return "same";
    if (!Number.isFinite(ratio)) return "–";
    return ratio >= 3 ? `${significant(ratio, 2)} times` : signed(percent(ratio - 1), ratio - 1);
}

export function verdict(facts: Facts, model: Model | null): Section {
    const made = section("verdict", "Verdict", "");
    const show = () => {
        const seen = facts.verdicts.filter(({ machine }) => !model || machine === model.view.machine);
        made.body.replaceChildren(...seen.map((each) => el("article", { class: "verdict" },
            el("p", { class: "sentence" }, shown(each.sentence)),
            each.facts.length > 0 && el("ol", { class: "largest" }, ...each.facts.map(({ text, basis }) =>
                el("li", {}, shown(text), " ", el("span", { class: `tag ${basis}` }, basis)))),
            caveats(facts, each))));
        if (seen.length === 0) made.body.append(el("p", {}, "There is nothing to judge: no gap was replayed."));
    };
    model?.subscribe((_, changed) => changed.has("machine") && show());
    show();
    return made;
}

/** All that limits a verdict: each cause once, whatever the number of logs that have it. */
function caveats(facts: Facts, { machine, limits }: Verdict): HTMLElement | null {
    const ids = facts.machines.map(({ id }) => `${id}: `);
    const bare = (text: string) => (text.startsWith(ids[machine]) ? text.slice(ids[machine].length) : text).replace(/ \(\d+ times\)$/, "");
    const doubts = [...facts.notes.doubts, ...facts.logs.flatMap(({ doubts, name }) => doubts.map((doubt) => ({ ...doubt, about: doubt.about || name })))]
        .filter(({ text }) => !ids.some((id, i) => i !== machine && text.startsWith(id)));
    const known = new Set(doubts.map(({ text }) => bare(text)));
    const own = limits.filter((text) => !known.has(bare(text)) && !/\d+ other doubts/.test(text)).map((text): Doubt => ({ text, about: "", is_minor: false }));
    const of = (isMinor: boolean) => grouped([...own, ...doubts].filter(({ is_minor }) => is_minor === isMinor).map(({ text, about }) => [bare(text), about]), facts.logs.length)
        .map(([text, about]) => el("li", {}, shown(text), about && el("span", { class: "meaning" }, ` (${shown(about)})`)));
    const [major, minor] = [of(false), of(true)];
    if (major.length + minor.length === 0) return null;
    return el("details", { class: "limits" }, el("summary", {}, `Caveats: ${major.length}${minor.length ? `, and ${minor.length} minor` : ""}`),
        el("ul", {}, ...major), minor.length > 0 && el("p", {}, "Minor:"), minor.length > 0 && el("ul", {}, ...minor));
}

/** Equal texts once, with all that they are about. `count` logs are all logs. */
export function grouped(items: [text: string, about: string][], count: number): [text: string, about: string][] {
    const all = new Map<string, Set<string>>();
    for (const [text, about] of items) all.set(text, (all.get(text) ?? new Set()).add(about));
    return [...all].map(([text, abouts]) => {
        const named = [...abouts].filter(Boolean);
        return [text, count < 2 ? "" : named.length === count ? `all ${count} logs` : named.join(", ")];
    });
}
