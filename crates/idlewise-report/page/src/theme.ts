// Light or dark: as the system says, until somebody chooses.

import { button } from "./dom";

const listeners: (() => void)[] = [];
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Called when colours that a canvas has read are no longer right. */
export function onTheme(listener: () => void): void {
    listeners.push(listener);
}

/** A colour of the style sheet, as red, green and blue. */
export function colour(name: string): [number, number, number] {
    const probe = document.createElement("i");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const numbers = getComputedStyle(probe).color.match(/[\d.]+/g)!.map(Number);
    probe.remove();
    return [numbers[0], numbers[1], numbers[2]];
}

/** The names of the colours of states, shallowest first. Polling has one of its own, because it saves nothing. */
export function stateColours(states: { is_polling: boolean }[]): string[] {
    const sleeping = states.filter((state) => !state.is_polling).length;
    let place = 0;
    return states.map((state) => {
        if (state.is_polling) return "polling";
        const step = sleeping < 2 ? 2 : Math.round((place++ * 4) / (sleeping - 1));
        return `state-${step}`;
    });
}

function isDark(): boolean {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : dark.matches;
}

export function toggleTheme(): void {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    for (const listener of listeners) listener();
}

export function themeButton(): HTMLButtonElement {
    return button("light / dark", toggleTheme, { class: "small" });
}

// Paper is white, whatever the theme: canvases are painted anew for it.
// What is folded is there, too.
let before: string | undefined;
let folded: HTMLDetailsElement[] = [];
addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll<HTMLDetailsElement>("details:not([open])")];
    for (const details of folded) details.open = true;
    before = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    for (const listener of listeners) listener();
});
addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
    if (before) document.documentElement.dataset.theme = before;
    else delete document.documentElement.dataset.theme;
    for (const listener of listeners) listener();
});

dark.addEventListener("change", () => {
    for (const listener of listeners) listener();
});
