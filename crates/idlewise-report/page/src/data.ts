// Columns of the page: found by their number, inflated and decoded when somebody looks.

import type { Column, Columns } from "./format";

async function inflated(id: number): Promise<Uint8Array> {
    const element = document.querySelector(`script.column[data-id="${id}"]`);
    const text = element?.textContent ?? "";
    const packed = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The varints of `bytes`. They may exceed 32 bits, so they are added up as floating point, exact to 2⁵³. */
function varints(bytes: Uint8Array): Float64Array {
    let length = 0;
    for (const byte of bytes) length += byte < 128 ? 1 : 0;
    const values = new Float64Array(length);
    let at = 0;
    for (let i = 0; i < length; i++) {
        let byte = bytes[at++];
        let value = byte & 127;
        for (let scale = 128; byte >= 128; scale *= 128) {
            byte = bytes[at++];
            value += (byte & 127) * scale;
        }
        values[i] = value;
    }
    return values;
}

const documents = new Map<number, Promise<unknown>>();

/** A document, read once. */
export function decodeJson<T>(column: Column): Promise<T> {
    let found = documents.get(column.id);
    if (!found) {
        found = inflated(column.id).then((bytes) => JSON.parse(new TextDecoder().decode(bytes)));
        documents.set(column.id, found);
    }
    return found as Promise<T>;
}

/** A column's values. Absent ones are NaN. */
export async function decode(column: Column): Promise<Float64Array> {
    const bytes = await inflated(column.id);
    const values = column.encoding === "bytes" ? Float64Array.from(bytes) : varints(bytes);
    const isSigned = column.encoding === "z" || column.encoding === "delta";
    let last = 0;
    for (let i = 0; i < values.length; i++) {
        if (column.null && values[i]-- === 0) {
            values[i] = NaN;
            continue;
        }
        if (isSigned) values[i] = values[i] % 2 ? -(values[i] + 1) / 2 : values[i] / 2;
        if (column.encoding === "delta") values[i] = last += values[i];
    }
    return values;
}

/** A column, or null if the recording does not have it. */
export async function optional(columns: Columns, name: string, factor = 1): Promise<Float64Array | null> {
    const column = columns[name];
    if (!column) return null;
    const values = await decode(column);
    if (factor !== 1) for (let i = 0; i < values.length; i++) values[i] *= factor;
    return values;
}

export async function needed(columns: Columns, name: string, factor = 1): Promise<Float64Array> {
    const values = await optional(columns, name, factor);
    if (!values) throw new Error(`the page lacks the column "${name}"`);
    return values;
}
