// All that is known of one gap: what the governor saw, what it did, and what each state would have cost.

import { END, END_NAMES, UJ_PER_MW_NS } from "./cost";
import type { Course, Gaps } from "./course";
import { el, scrolled, shown } from "./dom";
import { FLAG, type Log } from "./format";
import { count, energy, exactTime, percent, time } from "./units";
import { shareText, type Model } from "./view";

const VERDICTS = ["fits", "▼ too deep", "▲ too shallow", "▼▲ both"];

export async function gapDetails(model: Model, log: Log, gaps: Gaps, courses: { governor: number; course: Course }[], i: number): Promise<Node[]> {
    const names = ["grid", "flags", "reason", "recorded_state", "recorded_idle", "limit"];
    const columns = await Promise.all(names.map((name) => gaps.column(name)));
    const value = (name: string) => columns[names.indexOf(name)]?.[i] ?? NaN;
    const sleep = (await gaps.sleeps())?.[i] ?? NaN;
    const { start, length } = gaps;
    const { cpu, from, to } = gaps.cpuOf(i);
    const flags = value("flags");
    const period = gaps.detail.tick_period_ns;
    const untilTick = (((value("grid") - (start[i] - gaps.detail.offset_ns)) % period) + period) % period || period;
    const reason = model.facts.reasons[value("reason")];
    const recorded = value("recorded_state");
    const limit = value("limit");
    const known = (bit: number, of: number, yes: string, no: string) => (flags & of ? (flags & bit ? yes : no) : "unknown");
    const items: [string, string][] = [
        ["CPU", `${cpu}, gap ${count(i - from + 1)} of ${count(to - from)}${gaps.detail.is_sampled ? " kept" : ""}`],
        ["began", `${exactTime(start[i])} after the log’s first gap`],
        ["length", exactTime(length[i])],
        ["ended by", log.knows.wakes && reason ? reason : "unknown: the recording does not tell"],
        ["next timer", !log.knows.timers ? "unknown: the recording has no timers" : Number.isNaN(sleep) ? "none known"
            : `${exactTime(sleep)} ahead${sleep === length[i] && reason === "timer" ? ", which ended the gap" : ""}`],
        ["next tick", `${exactTime(untilTick)} ahead${flags & FLAG.gridKnown ? "" : " (not recorded: assumed)"}`],
        ["a task ran before", known(FLAG.ranTask, FLAG.ranTaskKnown, "yes", "no")],
        ["tick when recorded", known(FLAG.tickStopped, FLAG.tickKnown, "stopped", "running")],
        ["latency limit", Number.isNaN(limit) ? "none" : time(limit)],
        ["recorded", Number.isNaN(recorded) ? "unknown: the recording has no states"
            : `${log.state_names?.[recorded] ?? `state ${recorded}`}${Number.isNaN(value("recorded_idle")) ? "" : `, idle for ${exactTime(length[i] + value("recorded_idle"))}`}`],
    ];
    const parts: Node[] = [el("dl", { class: "facts" }, ...items.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, shown(text))]))];
    for (const { governor, course } of courses) parts.push(courseDetails(model, governor, course, i));
    parts.push(whatIf(model, courses[0].course, i, limit));
    return parts;
}

function courseDetails(model: Model, governor: number, course: Course, i: number): Node {
    const { states } = model.machine;
    const { stays, ticks } = course.stays(i);
    const forecast = course.forecast?.[i] ?? NaN;
    const cost = course.energy[i] + model.lambdaMw * course.delay[i] * UJ_PER_MW_NS;
    const rows = stays.map((stay) => el("tr", {},
        el("td", {}, shown(states[stay.state]?.name ?? String(stay.state))),
        el("td", { class: "number" }, stay.end === END.rest ? `${count(stay.count)} more` : exactTime(stay.at)),
        el("td", { class: "number" }, exactTime(stay.length)),
        el("td", {}, stay.end === END.rest ? (ticks ? `${count(ticks)} ticks` : "") : END_NAMES[stay.end]),
        el("td", {}, stay.end === END.rest ? "" : VERDICTS[stay.verdict])));
    const heads = ["state", "entered after", "stayed", "ended by", "verdict"];
    return el("div", {},
        el("h4", {}, shown(model.governor(governor).name), el("span", { class: "meaning" }, ` ${VERDICTS[course.verdict[i]]}; energy ${energy(course.energy[i])}, delay ${time(course.delay[i])}, cost ${energy(cost)}`)),
        el("p", {}, Number.isNaN(forecast) ? "Its forecast is not known." : `It expected about ${time(2 ** (forecast / 16))}.`),
        scrolled("Stays", el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head, at) => el("th", { scope: "col", class: at === 1 || at === 2 ? "number" : "" }, head)))), el("tbody", {}, ...rows))));
}

function whatIf(model: Model, course: Course, i: number, limit: number): Node {
    const { costs, gaps } = course;
    const lambda = model.lambdaMw;
    const length = gaps.length[i];
    const right = costs.right(length, limit, lambda);
    const allowed = costs.allowed(limit);
    const least = costs.gapUj(right, length, lambda);
    const rows = model.machine.states.map((state, index) => {
        const cost = costs.gapUj(index, length, lambda);
        return el("tr", { class: index === right ? "right" : "" },
            el("td", {}, shown(state.name), index === right ? " ✓" : ""),
            el("td", { class: "number" }, energy(costs.gapUj(index, length, 0))),
            el("td", { class: "number" }, time(costs.exitNs(index))),
            el("td", { class: "number" }, energy(cost)),
            el("td", { class: "number" }, !allowed.includes(index) ? "not allowed" : index === right ? "best" : `+${percent(cost / least - 1)}`));
    });
    const heads = ["whole gap in", "energy", "delay", `cost at λ=${shareText(model.view.share)}`, "above the best"];
    return el("div", {}, el("h4", {}, "What each state would have cost"), scrolled("What each state would have cost", el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head, at) =>
        el("th", { scope: "col", class: at ? "number" : "" }, head)))), el("tbody", {}, ...rows))));
}
