// The bar at the top: what is looked at, and the price of delay.

import { choice, el, shown } from "./dom";
import { power } from "./units";
import { shareText, type Model, type View } from "./view";

/** The slider moves by the root, so that 0, ¼, 1 and 4 are spread evenly. */
const SLIDER_MAX = 200;
const shareAt = (position: number) => (position / 100) ** 2;
const positionOf = (share: number) => Math.sqrt(share) * 100;

export function bar(model: Model): HTMLElement {
    const { facts, view } = model;
    const node = el("form", { class: "bar", "aria-label": "What is shown" });
    node.addEventListener("submit", (event) => event.preventDefault());
    const lists: [keyof View, HTMLSelectElement][] = [];
    const add = (key: "log" | "machine" | "governor" | "against", label: string, names: [string, string][]) => {
        const value = view[key] === null ? "" : String(view[key]);
        const made = choice(label, names, value, (text) => model.set({ [key]: text === "" ? null : Number(text) }));
        lists.push([key, made.list]);
        node.append(made.node);
    };
    const named = (items: { name: string }[]): [string, string][] => items.map(({ name }, i) => [String(i), shown(name)]);
    const everything: [string, string][] = facts.logs.length > 1 ? [["", "all logs"]] : [];
    add("log", "log", [...everything, ...named(facts.logs)]);
    add("machine", "machine", facts.machines.map(({ id, title }, i) => [String(i), shown(title || id)]));
    const governors = facts.governors.flatMap(({ name, role }, i): [string, string][] =>
        (role === "oracle" ? [] : [[String(i), shown(name)]]));
    add("governor", "governor", governors);
    add("against", "against", [["", "–"], ...governors]);

    const slider = el("input", { type: "range", min: 0, max: SLIDER_MAX, step: 1, id: "lambda", "aria-describedby": "lambda-value" });
    const output = el("output", { id: "lambda-value", for: "lambda" });
    slider.addEventListener("input", () => {
        // The prices of the tables are easy to meet.
        const near = facts.prices.find(({ share }) => share !== null && Math.abs(positionOf(share) - slider.valueAsNumber) <= 2);
        model.set({ share: near?.share ?? shareAt(slider.valueAsNumber) });
    });
    node.append(el("label", { class: "choice price", for: "lambda" },
        el("span", {}, "λ, the price of delay"), el("span", { class: "slide" }, slider, output)));

    const show = () => {
        for (const [key, list] of lists) list.value = view[key] === null ? "" : String(view[key]);
        if (Math.abs(shareAt(slider.valueAsNumber) - view.share) > 0.02) slider.value = String(positionOf(view.share));
        const { full_price_mw } = model.machine;
        const text = `λ=${shareText(view.share)}: ${power(model.lambdaMw)}`;
        output.textContent = text;
        output.title = `λ=1 is ${power(full_price_mw)}: a second of delay costs what a second of polling costs`;
        slider.setAttribute("aria-valuetext", text);
    };
    slider.value = String(positionOf(view.share));
    model.subscribe(show);
    show();
    return node;
}
