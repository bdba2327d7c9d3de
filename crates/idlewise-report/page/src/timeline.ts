// When: all CPUs over time, from the whole recording to a microsecond.
//
// This file loads what is shown and listens to keys and pointers. lanes.ts paints, gap.ts explains one gap.

import { Course, Gaps, Lane, Misses } from "./course";
import { button, el, shown } from "./dom";
import type { Detail, Log } from "./format";
import { gapDetails } from "./gap";
import { onKey } from "./keys";
import { linkedGap, linkGap } from "./link";
import { later, section, unknown, type Section } from "./section";
import { TimelineView, type Shown } from "./timeline-view";
import { onTheme, stateColours } from "./theme";
import { count, energy, time } from "./units";
import type { Model } from "./view";

export interface Timeline {
    section: Section;
    show(log: number, cpu: number): void;
}

export function timeline(model: Model): Timeline {
    const made = section("when", "When",
        "Each CPU’s idle time, in the state that the governor chose: the deeper, the darker. Bars are misses, as tall as the root of their regret: ▼ down for too deep, ▲ up for too shallow. Choose a gap to see what went into the decision.");
    const loader = new Loader(model);
    const status = el("p", { class: "status" });
    const note = el("div");
    const legend = el("ul", { class: "legend" });
    const details = el("div", { class: "details", "aria-live": "polite" });
    const view = new TimelineView(status, (row) => {
        const gaps = loaded?.gaps;
        if (gaps) linkGap(row === null ? null : { cpu: gaps.cpuOf(row).cpu, start: gaps.start[row] });
        void explain(row);
    });
    const tools = el("p", { class: "tools keysets" },
        button("◂ miss", () => step(-1), { title: "the previous miss on this CPU (p)" }),
        button("miss ▸", () => step(1), { title: "the next miss on this CPU (n)" }),
        button("worst misses", () => worst(), { title: "the worst miss, then the second, … (w)" }),
        button("+", () => view.zoom(0.5), { title: "zoom in (+)", "aria-label": "zoom in" }),
        button("−", () => view.zoom(2), { title: "zoom out (-)", "aria-label": "zoom out" }),
        button("gap", () => view.zoomToSelected(), { title: "zoom to the chosen gap (f)" }),
        button("all", () => view.whole(), { title: "the whole recording (0)" }));
    const panel = el("div", { hidden: true }, tools, view.node, status, legend, details);
    made.body.append(note, panel);

    let ranking: number[] | null = null;
    let ranked = -1;
    let loaded: Loaded | null = null;
    let asked = 0;

    const show = later(made, async () => {
        const mine = ++asked;
        const log = chosenLog(model);
        if (log === null) {
            panel.hidden = true;
            note.replaceChildren(unknown("the page holds no gaps, only their sums."));
            return;
        }
        const next = await loader.load(log);
        if (mine !== asked) return;
        const isSameLog = loaded?.log === next.log;
        const linked = loaded ? null : linkedGap();
        loaded = next;
        ranking = null;
        ranked = -1;
        panel.hidden = false;
        note.replaceChildren(...notes(model, next));
        legend.replaceChildren(...legendItems(model, next));
        made.basis("Gaps, wake reasons and recorded states: recorded. Stays, misses and ticks: simulated. Energy: as in the machine’s table.");
        view.show(next.gaps, next.lanes, next.recorded, next.skipped, next.reasons, isSameLog);
        const row = linked && next.gaps.find(linked.cpu, linked.start);
        if (row !== null) {
            view.select(row, true);
            view.zoomToSelected();
            made.node.scrollIntoView();
        } else if (!isSameLog) {
            linkGap(null);
            if (linked) note.append(unknown(`the gap that the address names, on CPU ${linked.cpu}: the page does not hold it.`));
        }
        await explain(view.selected);
    });

    async function explain(row: number | null): Promise<void> {
        const now = loaded;
        if (!now || row === null || now.courses.length === 0) {
            details.replaceChildren();
            return;
        }
        const parts = await gapDetails(model, now.facts, now.gaps, now.courses, row);
        if (now === loaded && row === view.selected) details.replaceChildren(el("h3", {}, `A gap of ${time(now.gaps.length[row])} on CPU ${now.gaps.cpuOf(row).cpu}`), ...parts);
    }

    function step(direction: 1 | -1): void {
        const misses = loaded?.lanes[0]?.misses;
        if (misses && !view.stepToMiss(misses, direction)) {
            status.textContent = `No ${direction > 0 ? "later" : "earlier"} miss on this CPU. Up and down arrows choose another.`;
        }
        view.intoView();
    }

    function worst(): void {
        const misses = loaded?.lanes[0]?.misses;
        if (!misses) return;
        ranking ??= misses.ranking(100);
        if (ranking.length === 0) {
            status.textContent = "There are no misses.";
            return;
        }
        ranked = (ranked + 1) % ranking.length;
        view.select(ranking[ranked], true);
        view.zoomToSelected();
        view.intoView();
    }

    onKey("n", "the next miss on the CPU", () => step(1));
    onKey("p", "the previous miss on the CPU", () => step(-1));
    onKey("w", "the worst miss, then the second, …", worst);
    onKey("+ =", "zoom in (or Ctrl and the wheel)", () => view.zoom(0.5));
    onKey("- _", "zoom out", () => view.zoom(2));
    onKey("f", "zoom to the chosen gap", () => view.zoomToSelected());
    onKey("0", "the whole recording", () => view.whole());
    onKey("ArrowLeft", "in the timeline: earlier (or drag)", () => view.pan(-0.2), ".timeline");
    onKey("ArrowRight", "in the timeline: later", () => view.pan(0.2), ".timeline");
    onKey("ArrowUp", "in the timeline: the CPU above", () => view.moveCpu(-1), ".timeline");
    onKey("ArrowDown", "in the timeline: the CPU below", () => view.moveCpu(1), ".timeline");
    onKey("Enter", "in the timeline: the gap in the middle", () => view.selectMiddle(), ".timeline");
    onKey("Escape", "no gap chosen", () => view.select(null, false), ".timeline");
    onTheme(() => view.repaint());

    let timer = 0;
    model.subscribe((_, changed) => {
        clearTimeout(timer);
        // A slider that moves asks for sums over all gaps: wait until it rests.
        timer = setTimeout(show, changed.has("share") ? 120 : 0) as unknown as number;
    });
    return {
        section: made,
        show(log, cpu) {
            if (model.facts.logs.length > 1) model.set({ log });
            made.node.scrollIntoView();
            view.wantCpu(cpu);
        },
    };
}

/** The view's log; of all logs together, the one with most regret that has gaps in the page. */
function chosenLog(model: Model): number | null {
    const { log, machine, governor } = model.view;
    const has = (log: number) => model.facts.details.some((detail) => detail.log === log);
    if (log !== null) return has(log) ? log : null;
    const own = model.facts.results.filter((result) => result.log !== null && has(result.log) && result.machine === machine && result.governor === governor);
    const least = (log: number | null) => Math.min(...(model.facts.fronts.find((front) => front.log === log && front.machine === machine)?.points ?? []).map((point) => model.cost(point)));
    const regret = (result: (typeof own)[number]) => model.cost(result) - least(result.log);
    return own.sort((a, b) => regret(b) - regret(a))[0]?.log ?? model.facts.details[0]?.log ?? null;
}

interface Loaded {
    log: number;
    facts: Log;
    gaps: Gaps;
    courses: { governor: number; course: Course }[];
    lanes: Shown[];
    recorded: Shown | null;
    skipped: Float64Array | null;
    reasons: { rows: Float64Array; names: string[] } | null;
    /** Governors whose stays the page does not hold. */
    lacking: number[];
}

/** Decodes what is shown, and keeps it. */
class Loader {
    private readonly gaps = new Map<Detail, Promise<Gaps>>();
    private readonly courses = new Map<string, Promise<{ course: Course; lane: Lane } | null>>();
    private readonly recorded = new Map<Gaps, Promise<Lane | null>>();

    constructor(private readonly model: Model) {}

    async load(log: number): Promise<Loaded> {
        const { facts, view, machine, lambdaMw } = this.model;
        const detail = facts.details.find((detail) => detail.log === log)!;
        const gaps = await once(this.gaps, detail, () => Gaps.read(detail));
        const governors = [view.governor, ...(view.against === null ? [] : [view.against])];
        const machineIndex = view.machine;
        const read = await Promise.all(governors.map((governor) => once(this.courses, `${log} ${machineIndex} ${governor}`, async () => {
            const found = facts.courses.find((course) => course.log === log && course.machine === machineIndex && course.governor === governor);
            if (!found) return null;
            const course = await Course.read(gaps, found, machine);
            return { course, lane: Lane.ofCourse(course, machine.states.length) };
        })));
        const limit = await gaps.column("limit");
        const colours = stateColours(machine.states);
        const courses: Loaded["courses"] = [];
        const lanes: Shown[] = [];
        read.forEach((found, i) => {
            if (!found) return;
            const misses = new Misses(found.course, limit, lambdaMw);
            courses.push({ governor: governors[i], course: found.course });
            lanes.push({ name: shown(this.model.governor(governors[i]).name), lane: found.lane, misses, colours, states: machine.states.map(({ name }) => shown(name)) });
        });
        const facts_ = facts.logs[log];
        const names = facts_.state_names ?? [];
        const recordedLane = await once(this.recorded, gaps, () => recordedOf(gaps, names));
        const recordedStates = Array.from({ length: recordedLane?.stateCount ?? 0 }, (_, i) => names[i] ?? `state ${i}`);
        const recordedColours = stateColours(recordedStates.map((name) => ({ is_polling: /^poll/i.test(name) })));
        const reasons = facts_.knows.wakes ? await gaps.column("reason") : null;
        return {
            log, facts: facts_, gaps, courses, lanes,
            recorded: recordedLane && { name: "recorded", lane: recordedLane, misses: null, colours: recordedColours, states: recordedStates.map(shown) },
            skipped: detail.is_sampled ? await gaps.column("skipped") : null,
            reasons: reasons && { rows: reasons, names: facts.reasons },
            lacking: governors.filter((_, i) => read[i] === null),
        };
    }
}

async function recordedOf(gaps: Gaps, names: string[]): Promise<Lane | null> {
    const states = await gaps.column("recorded_state");
    if (!states) return null;
    const most = states.reduce((most, state) => (state > most ? state : most), names.length - 1);
    return new Lane(gaps, most + 1, (i, add) => {
        if (!Number.isNaN(states[i])) add(states[i], 0, gaps.length[i]);
    });
}

async function once<K, V>(known: Map<K, Promise<V>>, key: K, make: () => Promise<V>): Promise<V> {
    const found = known.get(key) ?? make();
    known.set(key, found);
    return found;
}

function notes(model: Model, { log, facts, gaps, courses, lacking }: Loaded): HTMLElement[] {
    const { detail } = gaps;
    const parts: HTMLElement[] = [];
    const several = model.facts.logs.length > 1 && model.view.log === null;
    parts.push(el("p", { class: "caption" }, shown(`${facts.name}${several ? ", the log with most regret (choose another in the bar above)" : ""}: ${count(gaps.count)} gaps on ${gaps.cpus.length === 1 ? "one CPU" : `${gaps.cpus.length} CPUs`}.`)));
    if (detail.is_sampled || detail.quantum_ns > 1) parts.push(el("p", { class: "unknown" }, shown(detail.how)));
    if (!facts.knows.states) parts.push(unknown("which states the kernel entered: the recording has no idle states of its own."));
    if (!facts.knows.timers) parts.push(unknown("the next timers: the recording has no timer events, so the governors decided without them."));
    if (!facts.knows.wakes) parts.push(unknown("what ended the gaps: the recording has no events that tell."));
    for (const governor of lacking) parts.push(unknown(`each stay of ${model.governor(governor).name}: the page holds stays of governors only, not of bounds.`));
    if (courses[0]) {
        const { energy: sum, delay } = courses[0].course.totals();
        const result = model.facts.results.find((result) => result.log === log && result.machine === model.view.machine && result.governor === courses[0].governor);
        const exact = !detail.is_sampled && detail.quantum_ns === 1;
        const agrees = result && Math.abs(sum - result.energy_uj) <= 1e-6 * result.energy_uj + 1e-6 && Math.abs(delay - result.delay_ns) < 1;
        const line = el("p", { class: "caption" }, `${shown(model.governor(courses[0].governor).name)}: ${energy(sum)} and ${time(delay)} of delay in these gaps`,
            exact && result ? (agrees ? ", as in the table above." : ` – but the table above has ${energy(result.energy_uj)} and ${time(result.delay_ns)}: please report this.`) : ".");
        Object.assign(line.dataset, { energy: String(sum), delay: String(delay), agrees: String(!exact || agrees) });
        parts.push(line);
    }
    return parts;
}

function legendItems(model: Model, { lanes, reasons, facts, skipped }: Loaded): HTMLElement[] {
    const swatch = (colour: string, name: string) => el("li", {}, el("span", { class: `swatch ${colour}` }), ` ${name}`);
    const items = (lanes[0]?.states ?? []).map((name, i) => swatch(lanes[0].colours[i], name));
    items.push(el("li", { class: "deep" }, el("strong", {}, "▼"), " too deep"), el("li", { class: "shallow" }, el("strong", {}, "▲"), " too shallow"),
        el("li", {}, el("strong", {}, "│"), " tick"));
    if (skipped) items.push(swatch("rule", "gaps left out: unknown"));
    if (reasons) items.push(el("li", {}, `ended by ${model.facts.reasons.filter((name) => name !== "unknown").join(", ")}: named where there is room`));
    if (facts.knows.states) items.push(el("li", {}, "thin stripe: recorded states"));
    return items;
}
