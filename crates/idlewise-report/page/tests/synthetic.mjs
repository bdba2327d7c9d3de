// Makes a page without the command: as the contract says, from made-up gaps. Its results are added up here, stay
// by stay, so that what the page computes from columns can be compared with them.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { deflateRawSync } from "node:zlib";

const dist = new URL("../dist/", import.meta.url);

function random(seed) {
    let state = seed >>> 0;
    return () => {
        state = (state + 0x6d2b79f5) >>> 0;
        let t = Math.imul(state ^ (state >>> 15), 1 | state);
        t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
        return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
}

const varints = (values) => {
    const bytes = [];
    for (let value of values) {
        while (value >= 128) {
            bytes.push((value % 128) | 128);
            value = Math.floor(value / 128);
        }
        bytes.push(value);
    }
    return Uint8Array.from(bytes);
};
const zigzag = (value) => (value < 0 ? -2 * value - 1 : 2 * value);
/** The bytes of a column; null values are absent. */
function encode(encoding, values, isNull) {
    if (encoding === "json") return new TextEncoder().encode(JSON.stringify(values));
    const code = encoding === "z" || encoding === "delta" ? zigzag : (value) => value;
    let last = 0;
    const codes = values.map((value) => {
        if (value === null) return 0;
        const coded = code(encoding === "delta" ? value - last : value) + (isNull ? 1 : 0);
        last = value;
        return coded;
    });
    return encoding === "bytes" ? Uint8Array.from(codes) : varints(codes);
}

const STATES = [
    ["POLL", 0, 0, 4000], ["C1", 1_000, 1_000, 1600], ["C1E", 2_000, 4_000, 1100], ["C6", 290_000, 800_000, 180],
];

function machine(id, title, factor) {
    const states = STATES.map(([name, exit, residency, power]) => ({
        name, exit_latency_ns: exit * factor, target_residency_ns: residency * factor, power_mw: power, transition_uj: 0,
        is_polling: name === "POLL", power_basis: "assumed", latency_basis: "documented",
    }));
    for (let i = 1; i < states.length; i++) {
        const saved = states[i - 1].power_mw - states[i].power_mw;
        states[i].transition_uj = states[i - 1].transition_uj + saved * states[i].target_residency_ns * 1e-6;
    }
    return { id, title, source: "made up for a test", full_price_mw: 4000, running_mw: 4000, tick_work_ns: 3000, states, doubts: [] };
}

const PERIOD = 4_000_000;
const REASONS = ["timer", "ipi", "resched", "irq", "softirq", "unknown"];

/** The stays of a gap under a made-up governor that guesses from the timer, wrongly at times. */
function replay(machine, gap, firstTick, guess, keepsTick) {
    const { states } = machine;
    const stays = [];
    let [at, tick, last] = [0, firstTick, 0];
    while (at < gap) {
        let state = 0;
        states.forEach((s, i) => (s.target_residency_ns <= guess - at * 0.5 || i === 1 ? (state = i) : 0));
        if (guess < 1500 && at === 0) state = 0;
        const limit = state === 0 ? 2_000 : Infinity;
        const left = gap - at;
        const tickLeft = keepsTick && stays.length < 40 ? tick - at : Infinity;
        const length = Math.min(left, tickLeft, limit);
        const end = length === left ? 0 : length === tickLeft ? 1 : 2;
        const [s, deeper] = [states[state], states[state + 1]];
        const isDeep = state > 0 && length + s.exit_latency_ns < s.target_residency_ns;
        const isShallow = !isDeep && deeper && length >= deeper.target_residency_ns;
        stays.push({ state, length, end, wait: at - last, verdict: isDeep ? 1 : isShallow ? 2 : 0 });
        last = at + length;
        if (end === 0) return { stays, delay: states[state].exit_latency_ns };
        if (end === 2) guess = 900_000;
        at += end === 2 ? length : length + states[state].exit_latency_ns + machine.tick_work_ns;
        while (tick <= at) tick += PERIOD;
    }
    return { stays, delay: at - gap };
}

/** Returns a function that packs a gap's stays as `stays` and entries of `more` (src/course.ts). Some of what could be
 *  left out is written nevertheless. */
function packer(machine) {
    const lengths = new Map();
    let number = 0;
    const head = (state, kind, verdict = 0) => (state * 4 + verdict) * 16 + kind;
    return (stays, delay, gap, firstTick) => {
        if (stays.length === 1 && stays[0].end === 0) return [0, []];
        let [at, waited] = [0, 0];
        const singles = stays.slice(0, 8).map(({ state, verdict, end, wait, length }) => {
            at += wait;
            const toTick = at < firstTick ? firstTick - at : PERIOD - ((at - firstTick) % PERIOD);
            const implied = end === 0 ? gap - at : end === 1 ? toTick : lengths.get(`${state} ${end}`) ?? 0;
            const isImplied = wait === waited && length === implied && number++ % 7 !== 0;
            lengths.set(`${state} ${end}`, length);
            at += length;
            waited = end === 1 ? machine.states[state].exit_latency_ns + machine.tick_work_ns : 0;
            return isImplied ? [head(state, end, verdict)] : [head(state, end + 8, verdict), wait, length];
        });
        const rest = stays.slice(8);
        if (rest.length === 0) return [singles.length, singles.flat()];
        const sums = machine.states.map(() => [0, 0]);
        let [ticks, work] = [0, 0];
        for (const { state, length, end } of rest) {
            sums[state][0] += 1;
            sums[state][1] += length;
            if (end !== 1) continue;
            ticks += 1;
            work += machine.states[state].exit_latency_ns + machine.tick_work_ns;
        }
        const entries = [...singles, ...sums.flatMap(([count, length], state) => (count ? [[head(state, 7), count, length]] : [])),
            [head(0, 6), ticks, work, delay]];
        return [entries.length, entries.flat()];
    };
}

/** Options: gaps, cpus, logs, machineCount, seed, knows, hostile. */
export function facts(options = {}) {
    const { gaps = 3000, cpus = 4, logs = 2, machineCount = 2, seed = 1, knows = {}, hostile = "" } = options;
    const columns = [];
    const column = (encoding, values, isNull = false) => {
        columns.push(encode(encoding, values, isNull));
        return { id: columns.length - 1, encoding, null: isNull };
    };
    const machines = [machine("spr", "Sapphire Rapids, Xeon Platinum 8460H", 1), machine("half", `Half as slow${hostile}`, 0.5)].slice(0, machineCount);
    const governors = [
        { name: "menu", about: "Linux 6.12", role: "governor" }, { name: `teo${hostile}`, about: "Linux 6.12", role: "governor" },
        { name: "ladder", about: "Linux 6.12", role: "governor" }, { name: "shallowest", about: "a bound", role: "bound" },
    ];
    const prices = [{ name: "λ = 0", share: 0 }, { name: "λ = ¼", share: 0.25 }, { name: "λ = 1", share: 1 }];
    const edges = [...new Set(Array.from({ length: 4 * 34 }, (_, i) => Math.round(2 ** (i / 4))))];
    const binOf = (gap) => Math.max(0, edges.findLastIndex((edge) => edge <= gap));
    const made = {
        schema: 1, kind: "replay", title: `idlewise report: ${logs} logs${hostile}`, program: "idlewise 0.1.0 (test)",
        command: "idlewise report --output report.html 'a log.parquet'", logs: [], machines, governors, prices, verdicts: [], results: [], fronts: [],
        regret: [], cpus: null, wakes: [], reasons: REASONS, edges_ns: edges, details: [], courses: [], tables: [], charts: [],
        notes: { basis: [{ basis: "simulated", text: "misses, delays and ticks" }, { basis: "assumed", text: "powers of spr" }],
            doubts: [{ text: `power of C1, C1E, C6 assumed${hostile}`, is_minor: false, about: "spr" }, { text: "small", is_minor: true, about: "" }] },
        provenance: [{ name: "kernel", value: `6.12${hostile}` }, { name: "BLAKE3 of log 1", value: "b8b748dbbd4e9f79" }],
    };
    const stayUj = (m, { state, length, end }) => {
        const s = m.states[state];
        const work = end === 1 ? s.exit_latency_ns + m.tick_work_ns : 0;
        return (s.power_mw * length + m.running_mw * work) * 1e-6 + s.transition_uj;
    };
    const best = (m, gap, lambda) => {
        const costs = m.states.map((s, i) => stayUj(m, { state: i, length: gap, end: 0 }) + lambda * s.exit_latency_ns * 1e-6);
        let right = 0;
        costs.forEach((cost, i) => (cost <= costs[right] ? (right = i) : 0));
        return [right, costs[right]];
    };
    const pools = new Map();
    const pooledCells = new Map();
    const cpuRows = [];
    const allRows = [];
    for (let log = 0; log < logs; log++) {
        const next = random(seed + log);
        const rows = [];
        for (let cpu = 0; cpu < cpus; cpu++) {
            let [at, end] = [Math.floor(next() * 1e6), 0];
            for (let i = 0; i < Math.ceil(gaps / logs / cpus); i++) {
                const gap = Math.max(1, Math.round(10 ** (2.5 + next() * next() * 5)));
                const timer = next() < 0.5;
                const sleep = timer ? gap : Math.round(gap * (1 + next() * 30));
                rows.push({ cpu, start: at, busy: at - end, gap, sleep: next() < 0.05 ? null : sleep, tick: PERIOD - (at % PERIOD),
                    flags: 16 | 8 | 4 | (next() < 0.7 ? 2 : 0) | (next() < 0.3 ? 1 : 0), reason: timer ? 0 : 1 + Math.floor(next() * 5),
                    recorded: Math.floor(next() * 4), limit: null, noise: next() });
                end = at + gap;
                at += gap + Math.round(500 + next() * 20_000);
            }
        }
        // Times count from the first row.
        const offset = rows[0]?.start ?? 0;
        for (const [i, row] of rows.entries()) {
            if (i === 0 || rows[i - 1].cpu !== row.cpu) row.busy -= offset;
        }
        const span = rows.reduce((span, { start, gap }) => Math.max(span, start + gap), 1);
        made.logs.push({ name: `log-${log}${hostile}`, gap_count: rows.length, cpu_count: cpus, first_ns: 1e9, span_ns: span,
            idle_ns: rows.reduce((sum, row) => sum + row.gap, 0), kernel: "6.12", hz: 250, machine: "spr", state_names: ["POLL", "C1", "C1E", "C6"], governor: "menu", sha256: "ab".repeat(32),
            doubts: hostile ? [{ text: `task ${hostile}`, is_minor: false, about: `log-${log}${hostile}` }] : [],
            knows: { timers: true, wakes: true, states: true, ticks: true, ...knows } });
        const known = made.logs[log].knows;
        allRows.push(rows);
        let lastExpiry = 0;
        const timers = rows.map(({ start, gap, sleep }) => {
            if (sleep === null) return null;
            const from = lastExpiry;
            lastExpiry = start - offset + sleep;
            return sleep === gap ? 0 : 1 + zigzag(lastExpiry - from);
        });
        made.details.push({ log, kept_count: rows.length, gap_count: rows.length, is_sampled: false, how: "", quantum_ns: 1, tick_period_ns: PERIOD, offset_ns: offset, columns: {
            cpu: column("delta", rows.map((row) => row.cpu)), busy: column("z", rows.map((row) => row.busy)), gap: column("u", rows.map((row) => row.gap)),
            flags: column("bytes", rows.map((row) => row.flags)), limit: column("u", rows.map((row) => row.limit), true),
            skipped: column("u", rows.map(() => 0)), grid: column("delta", rows.map((row) => (row.start - offset + row.tick + PERIOD) % PERIOD)),
            ...(known.timers && { timer: column("u", timers, true) }),
            ...(known.wakes && { reason: column("bytes", rows.map((row) => row.reason)) }),
            ...(known.states && { recorded_state: column("bytes", rows.map((row) => row.recorded), true),
                recorded_idle: column("z", rows.map(() => 100), true) }),
        } });
        for (const reason of REASONS) {
            const of = rows.filter((row) => REASONS[row.reason] === reason);
            if (known.wakes && of.length) made.wakes.push({ log, reason, count: of.length, idle_ns: of.reduce((sum, row) => sum + row.gap, 0) });
        }
        machines.forEach((m, mi) => {
            const points = [0, 100, 300, 1000, 2000, 4000, 16000].map((lambda_mw) => {
                let [energy, delay] = [0, 0];
                for (const row of rows) {
                    const [right, cost] = best(m, row.gap, lambda_mw);
                    delay += m.states[right].exit_latency_ns;
                    energy += cost - lambda_mw * m.states[right].exit_latency_ns * 1e-6;
                }
                return { lambda_mw, energy_uj: energy, delay_ns: delay };
            });
            made.fronts.push({ log, machine: mi, points });
            governors.forEach((governor, gi) => {
                const result = { log, machine: mi, governor: gi, energy_uj: 0, delay_ns: 0, idle_ns: 0, gap_count: rows.length, too_deep_count: 0,
                    too_shallow_count: 0, forbidden_count: 0, tick_wake_count: 0, delays: [], states: m.states.map(() => ({ entry_count: 0, stay_ns: 0, too_deep_count: 0, too_shallow_count: 0 })),
                    promotion_count: gi === 1 ? 12 : null, free_ipi_count: gi === 1 ? 345 : null };
                const cells = prices.map(() => new Map());
                const perCpu = Array.from({ length: cpus }, () => prices.map(() => [0, 0]));
                const course = { state: [], verdict: [], stays: [], more: [], forecast: [] };
                const delays = [];
                const pack = packer(m);
                for (const row of rows) {
                    const wild = [30, 3, 0.2, 0][gi] ** (row.noise * 2 - 1);
                    const guess = gi === 3 ? 0 : gi === 1 ? row.gap * wild : (row.sleep ?? row.gap) * wild;
                    const { stays, delay } = replay(m, row.gap, row.tick, guess, gi !== 2);
                    let verdict = 0;
                    let energy = 0;
                    stays.forEach((stay) => {
                        verdict |= stay.verdict;
                        result.too_deep_count += stay.verdict === 1 ? 1 : 0;
                        result.too_shallow_count += stay.verdict === 2 ? 1 : 0;
                        result.tick_wake_count += stay.end === 1 ? 1 : 0;
                        result.states[stay.state].entry_count += 1;
                        result.states[stay.state].stay_ns += stay.length;
                        energy += stayUj(m, stay);
                    });
                    result.energy_uj += energy;
                    result.delay_ns += delay;
                    result.idle_ns += row.gap;
                    delays.push(delay);
                    prices.forEach(({ share }, p) => {
                        const lambda = share * m.full_price_mw;
                        const [right, least] = best(m, row.gap, lambda);
                        const regret = energy + lambda * delay * 1e-6 - least;
                        const key = `${binOf(row.gap)} ${stays[0].state} ${right}`;
                        const cell = cells[p].get(key) ?? [binOf(row.gap), stays[0].state, right, 0, 0];
                        cell[3] += 1;
                        cell[4] += regret;
                        cells[p].set(key, cell);
                        perCpu[row.cpu][p][0] += regret;
                        perCpu[row.cpu][p][1] += least;
                    });
                    course.state.push(stays[0].state);
                    course.verdict.push(verdict);
                    const [count, more] = pack(stays, delay, row.gap, row.tick);
                    course.stays.push(count);
                    for (const value of more) course.more.push(value);
                    course.forecast.push(gi === 0 ? Math.round(16 * Math.log2(Math.max(1, guess))) : null);
                }
                delays.sort((a, b) => a - b);
                for (let k = 0; k <= 40; k++) {
                    const quantile = 1 - 10 ** (-k / 10);
                    result.delays.push({ quantile, ns: delays[Math.max(0, Math.ceil(quantile * delays.length) - 1)] ?? 0 });
                }
                for (const q of [0.5, 0.9, 0.99, 0.999]) result.delays.push({ quantile: q, ns: delays[Math.max(0, Math.ceil(q * delays.length) - 1)] ?? 0 });
                result.delays.sort((a, b) => a.quantile - b.quantile);
                made.results.push(result);
                prices.forEach((_, price) => {
                    const key = `${mi} ${gi} ${price}`;
                    pooledCells.set(key, [...(pooledCells.get(key) ?? []), ...cells[price].values()]);
                });
                prices.forEach((_, price) => made.regret.push({ log, machine: mi, governor: gi, price, cells: column("json", [...cells[price].values()]) }));
                perCpu.forEach((shares, cpu) => {
                    const of = rows.filter((row) => row.cpu === cpu);
                    cpuRows.push({ log, cpu, machine: mi, governor: gi, gap_count: of.length, idle_ns: of.reduce((sum, row) => sum + row.gap, 0),
                        regret_share: shares.map(([regret, least]) => (least ? regret / least : null)) });
                });
                if (governor.role === "governor") {
                    made.courses.push({ log, machine: mi, governor: gi, columns: {
                        state: column("bytes", course.state), verdict: column("bytes", course.verdict), stays: column("u", course.stays), more: column("u", course.more),
                        ...(gi === 0 && { forecast: column("u", course.forecast, true) }),
                    } });
                }
                const pool = pools.get(`${mi} ${gi}`);
                if (!pool) pools.set(`${mi} ${gi}`, { ...structuredClone(result), log: null });
                else {
                    for (const key of ["energy_uj", "delay_ns", "idle_ns", "gap_count", "too_deep_count", "too_shallow_count", "tick_wake_count"]) pool[key] += result[key];
                    result.states.forEach((state, i) => Object.keys(state).forEach((key) => (pool.states[i][key] += state[key])));
                }
            });
        });
    }
    if (logs > 1) {
        made.results.push(...pools.values());
        machines.forEach((_, machine) => {
            const of = made.fronts.filter((front) => front.machine === machine);
            made.fronts.push({ log: null, machine, points: of[0].points.map((point, i) => ({ lambda_mw: point.lambda_mw,
                energy_uj: of.reduce((sum, front) => sum + front.points[i].energy_uj, 0), delay_ns: of.reduce((sum, front) => sum + front.points[i].delay_ns, 0) })) });
            governors.forEach((_, governor) => prices.forEach((_, price) => made.regret.push({ log: null, machine, governor, price,
                cells: column("json", pooledCells.get(`${machine} ${governor} ${price}`)) })));
        });
    }
    machines.forEach((m, machine) => made.verdicts.push({ machine, base: 0, other: 1, is_in_use: true, sentence: `On ${m.id}, teo comes nearest to the oracle at λ=¼ × polling power: it costs 19 % more.${hostile}`,
        facts: [{ text: "menu chose too deep in 31 % of 24 676 gaps", basis: "simulated" }, { text: "energy differs by 2.6 J of 16.0 J", basis: "assumed" }], limits: [`power of C1, C1E, C6 assumed${hostile}`] }));
    made.cpus = column("json", cpuRows);
    made.tables.push({ id: "replay", title: "Replay", columns: [{ name: "governor", unit: "", about: "", better: null, is_text: true },
        { name: "regret λ=¼", unit: "%", about: "cost above the oracle's", better: "less", is_text: false }],
        rows: governors.map(({ name }, i) => [{ text: name, value: name }, { text: String(i), value: i }]), notes: [] });
    return { facts: made, columns, rows: allRows };
}

const escaped = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

/** The page as the Rust side writes it. */
export function page({ facts, columns }) {
    const [script, style] = ["page.js", "page.css"].map((name) => readFileSync(new URL(name, dist), "utf8"));
    const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
    const json = JSON.stringify(facts).replace(/</g, "\\u003c").replace(/\u2028/g, "\\u2028").replace(/\u2029/g, "\\u2029");
    const blocks = columns.map((bytes, id) => `<script type="application/octet-stream" class="column" data-id="${id}">${deflateRawSync(bytes).toString("base64")}</script>`);
    return `<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>${escaped(facts.title)}</title><style>${style}</style></head>
<body><main id="page">${facts.verdicts.map(({ sentence }) => `<p>${escaped(sentence)}</p>`).join("")}</main>
<script type="application/json" id="facts">${json}</script>
${blocks.join("\n")}
<script>${script}</script></body></html>
`;
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
    process.stdout.write(page(facts(JSON.parse(process.argv[2] ?? "{}"))));
}
