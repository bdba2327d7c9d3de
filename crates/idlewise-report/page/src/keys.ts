// Shortcuts: single keys, listed by `?`, and not while somebody types. They can be turned off, because speech
// input types letters, too.

import { button, el } from "./dom";

export interface Key {
    key: string;
    about: string;
    act: () => void;
    /** Only while such an element has the focus: elsewhere the key has its usual meaning. */
    within: string | null;
}

/** What keyboards show. */
const CAPS: Record<string, string> = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc", "-": "−" };

const keys: Key[] = [];
let isOn = true;

/** Adds a shortcut. Several keys for the same thing are separated by a space. */
export function onKey(key: string, about: string, act: () => void, within: string | null = null): void {
    keys.push({ key, about, act, within });
}

export interface Help {
    node: HTMLDialogElement;
    open: HTMLButtonElement;
}

export function help(): Help {
    const rows = el("tbody");
    const on = el("input", { type: "checkbox", checked: true });
    on.addEventListener("change", () => (isOn = on.checked));
    const node = el("dialog", { "aria-labelledby": "keys-title" },
        el("h2", { id: "keys-title" }, "Keys"),
        el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "key"), el("th", { scope: "col" }, "does"))), rows),
        el("p", {}, el("label", {}, on, " single keys are shortcuts")),
        button("close", () => node.close()));
    const show = () => {
        rows.replaceChildren(...keys.map(({ key, about }) => el("tr", {},
            el("td", {}, ...key.split(" ").flatMap((name) => [el("kbd", {}, CAPS[name] ?? name), " "])), el("td", {}, about))));
        node.showModal();
    };
    onKey("?", "this list", show);
    document.addEventListener("keydown", (event) => {
        if (!isOn || node.open || event.ctrlKey || event.metaKey || event.altKey) return;
        const target = event.target as HTMLElement;
        // A list and the slider have their own use for letters and arrows.
        if (target.matches("select, input, textarea")) return;
        const found = keys.find(({ key }) => key.split(" ").includes(event.key));
        if (!found || (found.within && !target.matches(found.within))) return;
        event.preventDefault();
        found.act();
    });
    return { node, open: button("keys ?", show, { class: "small" }) };
}
