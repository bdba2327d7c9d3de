// Makes elements. All text comes from a file that a stranger may have sent, so it only ever becomes a
// text node or the value of a harmless attribute.

type Child = Node | string | null | undefined | false;
type Attributes = { [name: string]: string | number | boolean | null | undefined };

function filled<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
    for (const [name, value] of Object.entries(attributes)) {
        if (value === true) element.setAttribute(name, "");
        else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
    }
    for (const child of children) if (child) element.append(child);
    return element;
}

/** An HTML element. */
export function el<K extends keyof HTMLElementTagNameMap>(
    name: K,
    attributes: Attributes = {},
    ...children: Child[]
): HTMLElementTagNameMap[K] {
    return filled(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(
    name: K,
    attributes: Attributes = {},
    ...children: Child[]
): SVGElementTagNameMap[K] {
    return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

export function button(text: string, act: () => void, attributes: Attributes = {}): HTMLButtonElement {
    const made = el("button", { type: "button", ...attributes }, text);
    made.addEventListener("click", act);
    return made;
}

/** A labelled list to choose from. */
export function choice(label: string, names: [string, string][], value: string, choose: (value: string) => void) {
    const list = el("select", {}, ...names.map(([key, name]) => el("option", { value: key }, name)));
    list.value = value;
    list.addEventListener("change", () => choose(list.value));
    return { node: el("label", { class: "choice" }, el("span", {}, label), list), list };
}

/** A table that may be wider than its place: then it scrolls, and says that there is more. */
export function scrolled(label: string, table: HTMLElement): HTMLElement {
    const scroll = el("div", { class: "scroll", role: "group", "aria-label": label }, table);
    const more = el("p", { class: "more", "aria-hidden": "true" }, "more columns →");
    const look = () => {
        const rest = scroll.scrollWidth - scroll.clientWidth;
        if (rest > 1) scroll.tabIndex = 0;
        else scroll.removeAttribute("tabindex");
        more.hidden = rest - scroll.scrollLeft <= 1;
    };
    scroll.addEventListener("scroll", look);
    const observer = new ResizeObserver(look);
    for (const node of [scroll, table]) observer.observe(node);
    return el("div", {}, scroll, more);
}

/** Foreign text on one line: what could move the cursor or turn the line around is made visible. */
export function shown(text: string): string {
    return text.replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu, (c) =>
        `\\u{${c.codePointAt(0)!.toString(16)}}`);
}
