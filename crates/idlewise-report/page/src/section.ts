// The frame of every section: a heading that can be linked to, a line that says how to read it, and the basis.

import { el, shown } from "./dom";

export interface Section {
    id: string;
    node: HTMLElement;
    body: HTMLElement;
    title: string;
    /** Says on what the figures rest. */
    basis(text: string): void;
}

export function section(id: string, title: string, how: string): Section {
    const body = el("div", { class: "body" });
    const line = el("p", { class: "basis", hidden: true });
    const node = el("section", { id, "aria-labelledby": `${id}-title`, tabindex: -1 },
        el("h2", { id: `${id}-title` }, title),
        how ? el("p", { class: "how" }, how) : null,
        body, line);
    const basis = (text: string) => {
        line.hidden = text === "";
        line.textContent = shown(text);
    };
    return { id, node, body, title, basis };
}

/** What a panel says in place of what is not known. */
export function unknown(text: string): HTMLElement {
    return el("p", { class: "unknown" }, `Unknown: ${shown(text)}`);
}

/** Calls `show` after the page's first picture, and then whenever it is asked to. Until then, the section says that its
 *  part of the file is being read. Nothing waits until somebody looks: a printer takes what is there. */
export function later(made: Section, show: () => Promise<void> | void): () => void {
    const reading = el("p", { class: "caption", role: "status" }, "Reading …");
    made.body.prepend(reading);
    let isReady = false;
    const run = async () => {
        if (!isReady) return;
        try {
            await show();
            reading.remove();
        } catch (error) {
            made.body.replaceChildren(unknown(`this part of the page cannot be read (${error instanceof Error ? error.message : error})`));
            throw error;
        }
    };
    setTimeout(() => {
        isReady = true;
        void run();
    });
    return () => void run();
}
