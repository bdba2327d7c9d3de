// The frame of every section: a heading that can be linked to, a line that says how to read it, and the basis.

import { copyButton } from "./copy";
import { el, shown } from "./dom";

export interface Section {
    id: string;
    node: HTMLElement;
    body: HTMLElement;
    title: string;
    /** Says on what the figures rest. */
    basis(text: string): void;
}

export function section(id: string, title: string, how: string, command?: string): Section {
    const body = el("div", { class: "body" });
    const says = el("span");
    const line = el("p", { class: "basis", hidden: true }, says, command ? copyButton("copy the command", () => command) : null);
    const node = el("section", { id, "aria-labelledby": `${id}-title`, tabindex: -1 },
        el("h2", { id: `${id}-title` }, title),
        how ? el("p", { class: "how" }, how) : null,
        body, line);
    const basis = (text: string) => {
        line.hidden = text === "";
        says.textContent = shown(text);
    };
    return { id, node, body, title, basis };
}

/** What a panel says in place of what is not known. */
export function unknown(text: string): HTMLElement {
    return el("p", { class: "unknown" }, `Unknown: ${shown(text)}`);
}

/** Calls `show` when the section comes near the window, and then whenever it is asked to. What nobody looks at is
 *  neither decoded nor drawn. */
export function lazily(made: Section, show: () => Promise<void> | void): () => void {
    let isNear = false;
    const run = async () => {
        if (!isNear) return;
        try {
            await show();
        } catch (error) {
            made.body.replaceChildren(unknown(`this part of the page cannot be read (${error instanceof Error ? error.message : error})`));
            throw error;
        }
    };
    const observer = new IntersectionObserver((entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        observer.disconnect();
        begin();
    }, { rootMargin: "600px" });
    const begin = () => {
        if (isNear) return;
        isNear = true;
        void run();
    };
    observer.observe(made.node);
    addEventListener("beforeprint", begin);
    return () => void run();
}
