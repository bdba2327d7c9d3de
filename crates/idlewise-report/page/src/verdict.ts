// The verdict: what somebody with fifteen seconds reads.

import { el, shown } from "./dom";
import type { Facts } from "./format";
import { section, type Section } from "./section";

export function verdict(facts: Facts): Section {
    const made = section("verdict", "Verdict", "");
    const all = el("div", { class: "verdicts" });
    made.body.append(all);
    for (const { machine, sentence, facts: largest, limits } of facts.verdicts) {
        all.append(el("article", { class: "verdict" },
            facts.machines.length > 1 && el("h3", {}, shown(facts.machines[machine]?.title ?? "")),
            el("p", { class: "sentence" }, shown(sentence)),
            largest.length > 0 && el("ol", { class: "largest" }, ...largest.map(({ text, basis }) =>
                el("li", {}, shown(text), " ", el("span", { class: `tag ${basis}` }, basis)))),
            limits.length > 0 && el("div", { class: "limits" },
                el("p", {}, "What limits this:"),
                el("ul", {}, ...limits.map((text) => el("li", {}, shown(text)))))));
    }
    if (facts.verdicts.length === 0) made.body.append(el("p", {}, "There is nothing to judge: no gap was replayed."));
    return made;
}
