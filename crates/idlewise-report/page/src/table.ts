// A table: sorted by any column, copied as CSV or Markdown, its rows perhaps a choice.

import { copyButton } from "./copy";
import { el, scrolled, shown } from "./dom";
import type { Cell, TableColumn } from "./format";

export interface Row {
    cells: Cell[];
    /** Set if the row can be chosen: its first cell becomes a button. */
    choose?: () => void;
    isChosen?: boolean;
    mark?: string;
}

export interface Sort {
    column: number;
    isDown: boolean;
}

export class SortedTable {
    readonly node: HTMLElement;
    private rows: Row[] = [];
    private readonly body = el("tbody");
    private readonly heads: HTMLTableCellElement[];

    constructor(
        private readonly title: string,
        private readonly columns: TableColumn[],
        private sort: Sort | null,
    ) {
        this.heads = columns.map((column, index) => {
            const by = el("button", { type: "button", title: shown(column.about) || null }, shown(column.name));
            by.addEventListener("click", () => this.sortBy(index));
            const unit = column.unit && el("span", { class: "unit" }, shown(column.unit));
            return el("th", { scope: "col", class: column.is_text ? "text" : "number" }, by, unit || null);
        });
        const table = el("table", {},
            el("caption", {}, shown(title)),
            el("thead", {}, el("tr", {}, ...this.heads)),
            this.body);
        const tools = el("p", { class: "tools" },
            copyButton("copy as CSV", () => this.csv()),
            copyButton("copy as Markdown", () => this.markdown()));
        this.node = el("div", { class: "table" }, scrolled(shown(title), table), tools);
    }

    show(rows: Row[]): this {
        this.rows = rows;
        this.draw();
        return this;
    }

    private sortBy(column: number): void {
        const first = this.columns[column].better === "more";
        const isDown = this.sort?.column === column ? !this.sort.isDown : first;
        this.sort = { column, isDown };
        this.draw();
    }

    private sorted(): Row[] {
        const sort = this.sort;
        if (!sort) return this.rows;
        const sign = sort.isDown ? -1 : 1;
        return [...this.rows].sort((a, b) => {
            const [x, y] = [a.cells[sort.column].value, b.cells[sort.column].value];
            // What is absent stays at the end.
            if (x === null || y === null) return Number(x === null) - Number(y === null);
            return sign * (typeof x === "string" || typeof y === "string" ? String(x).localeCompare(String(y)) : x - y);
        });
    }

    private draw(): void {
        this.heads.forEach((head, index) => {
            if (this.sort?.column === index) head.setAttribute("aria-sort", this.sort.isDown ? "descending" : "ascending");
            else head.removeAttribute("aria-sort");
        });
        const best = this.columns.map((column, index) => {
            const rivals = this.rows.filter((row) => row.mark !== "bound");
            const values = rivals.map((row) => row.cells[index].value).filter((value) => typeof value === "number");
            if (column.better === null || values.length < 2) return null;
            return column.better === "less" ? Math.min(...values) : Math.max(...values);
        });
        const focused = this.body.contains(document.activeElement) ? document.activeElement!.textContent : null;
        this.body.replaceChildren(...this.sorted().map((row) => el("tr", { class: row.mark },
            ...row.cells.map((cell, index) => this.cell(row, cell, index, best[index])))));
        if (focused !== null) {
            [...this.body.querySelectorAll("button")].find((by) => by.textContent === focused)?.focus();
        }
    }

    private cell(row: Row, cell: Cell, index: number, best: number | null): HTMLElement {
        const column = this.columns[index];
        const isBest = best !== null && cell.value === best && row.mark !== "bound";
        const text = shown(cell.text) || "–";
        if (index === 0 && row.choose) {
            const by = el("button", { type: "button", "aria-pressed": String(row.isChosen ?? false) }, text);
            by.addEventListener("click", row.choose);
            return el("th", { scope: "row", class: "text" }, by);
        }
        if (index === 0) return el("th", { scope: "row", class: column.is_text ? "text" : "number" }, text);
        const classes = `${column.is_text ? "text" : "number"}${isBest ? " best" : ""}`;
        return el("td", { class: classes }, text);
    }

    private head(column: TableColumn): string {
        return shown(column.unit ? `${column.name} [${column.unit}]` : column.name);
    }

    /** Full precision, as others compute with it. */
    csv(): string {
        // A spreadsheet would take text that begins like this for a formula.
        const guarded = (text: string) => (/^[=+\-@]/.test(text) ? `'${text}` : text);
        const quoted = (text: string) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
        const value = (cell: Cell) => (typeof cell.value === "number" ? String(cell.value) : quoted(guarded(shown(cell.value ?? ""))));
        return [this.columns.map((column) => quoted(this.head(column))).join(","),
            ...this.sorted().map((row) => row.cells.map(value).join(","))].join("\n") + "\n";
    }

    /** As shown. */
    markdown(): string {
        const safe = (text: string) => shown(text).replace(/[\\|`*_<>[\]]/g, "\\$&");
        const line = (cells: string[]) => `| ${cells.join(" | ")} |`;
        return [line(this.columns.map((column) => safe(this.head(column)))),
            line(this.columns.map((column) => (column.is_text ? "---" : "---:"))),
            ...this.sorted().map((row) => line(row.cells.map((cell) => safe(cell.text))))].join("\n") + "\n";
    }

    get name(): string {
        return this.title;
    }
}
