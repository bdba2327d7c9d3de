// Copying. A page from file:// may lack the clipboard's API; then the text is selected and the browser asked.

import { button } from "./dom";

export async function copy(text: string): Promise<boolean> {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        const area = document.createElement("textarea");
        area.value = text;
        area.setAttribute("aria-hidden", "true");
        area.className = "offscreen";
        document.body.append(area);
        const before = document.activeElement as HTMLElement | null;
        area.select();
        const done = document.execCommand("copy");
        area.remove();
        before?.focus();
        return done;
    }
}

/** A button that copies what `make` returns, and says so. */
export function copyButton(label: string, make: () => string): HTMLButtonElement {
    const made = button(label, async () => {
        const done = await copy(make());
        made.textContent = done ? "copied" : "not copied: the browser refuses";
        setTimeout(() => (made.textContent = label), 1500);
    }, { class: "small" });
    return made;
}
