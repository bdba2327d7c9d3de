//! Reads the page of `idlewise report` in the most naive way: facts as JSON, columns byte by byte. It
//! shares no code with the writer.

use std::collections::HashMap;
use std::io::Read;

use base64::Engine as _;
use serde_json::Value;

/// A page that was read.
pub struct PageFile {
    pub html: String,
    pub facts: Value,
    columns: HashMap<u64, String>,
}

impl PageFile {
    pub fn parse(html: String) -> Self {
        let (_, rest) = html.split_once("id=\"facts\">").expect("facts");
        let (facts, _) = rest.split_once("</script>").expect("their end");
        let facts = serde_json::from_str(facts).expect("JSON");
        let columns = html.split("class=\"column\" data-id=\"").skip(1).map(|block| {
            let (id, rest) = block.split_once("\">").unwrap();
            let (text, _) = rest.split_once("</script>").unwrap();
            (id.parse().unwrap(), text.to_owned())
        });
        let columns = columns.collect();
        PageFile { html, facts, columns }
    }

    /// What is read without the script.
    pub fn plain(&self) -> &str {
        let (_, rest) = self.html.split_once("<main id=\"page\">").unwrap();
        rest.split_once("</main>").unwrap().0
    }

    fn bytes(&self, column: &Value) -> Vec<u8> {
        let packed = &self.columns[&column["id"].as_u64().unwrap()];
        let packed = base64::engine::general_purpose::STANDARD.decode(packed).unwrap();
        let mut bytes = Vec::new();
        flate2::read::DeflateDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        bytes
    }

    pub fn document(&self, column: &Value) -> Value {
        assert_eq!(column["encoding"], "json");
        serde_json::from_slice(&self.bytes(column)).unwrap()
    }

    /// A column's values.
    pub fn values(&self, column: &Value) -> Vec<Option<i64>> {
        let bytes = self.bytes(column);
        let encoding = column["encoding"].as_str().unwrap();
        let mut numbers: Vec<u64> = Vec::new();
        if encoding == "bytes" {
            numbers.extend(bytes.iter().map(|&byte| u64::from(byte)));
        } else {
            let (mut number, mut shift) = (0, 0);
            for byte in bytes {
                number |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    numbers.push(number);
                    (number, shift) = (0, 0);
                }
            }
            assert_eq!(shift, 0, "the last number is whole");
        }
        let is_nullable = column["null"].as_bool().unwrap();
        let mut previous = 0;
        let value = |number: u64| {
            let number = if is_nullable { number.checked_sub(1)? } else { number };
            let signed =
                if number % 2 == 0 { (number / 2) as i64 } else { -1 - (number / 2) as i64 };
            Some(match encoding {
                "bytes" | "u" => number as i64,
                "z" => signed,
                "delta" => {
                    previous += signed;
                    previous
                }
                other => panic!("{other}"),
            })
        };
        numbers.into_iter().map(value).collect()
    }

    /// The values of a column that cannot lack any.
    pub fn known(&self, column: &Value) -> Vec<i64> {
        self.values(column).into_iter().map(|value| value.expect("known")).collect()
    }
}

/// A gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub cpu: i64,
    pub start: i64,
    pub gap: i64,
}

/// The totals of a course, computed from its columns.
#[derive(Debug, Default, PartialEq)]
pub struct Totals {
    pub energy_uj: f64,
    pub delay_ns: u64,
    pub tick_count: u64,
    pub entry_counts: Vec<u64>,
}

impl PageFile {
    /// The rows of a log's gaps, in the page's unit of time.
    pub fn rows(&self, detail: &Value) -> Vec<Row> {
        let column = |name: &str| self.known(&detail["columns"][name]);
        let (mut last_cpu, mut end) = (None, 0);
        let mut rows = Vec::new();
        for ((cpu, busy), gap) in column("cpu").into_iter().zip(column("busy")).zip(column("gap")) {
            let start = if last_cpu == Some(cpu) { end } else { 0 } + busy;
            (last_cpu, end) = (Some(cpu), start + gap);
            rows.push(Row { cpu, start, gap });
        }
        rows
    }

    /// Adds up what a course costs, from its columns and its machine's states alone.
    pub fn totals(&self, course: &Value) -> Totals {
        let facts = &self.facts;
        let machine = &facts["machines"][course["machine"].as_u64().unwrap() as usize];
        let detail = facts["details"].as_array().unwrap().iter();
        let detail = detail.clone().find(|detail| detail["log"] == course["log"]).unwrap();
        assert_eq!(detail["quantum_ns"], 1, "it was not rounded");
        let states = machine["states"].as_array().unwrap();
        let exit_ns = |state: usize| states[state]["exit_latency_ns"].as_u64().unwrap();
        let tick_work_ns = machine["tick_work_ns"].as_u64().unwrap();
        let column = |name: &str| self.known(&course["columns"][name]);
        let rows = self.rows(detail);
        let grid = self.known(&detail["columns"]["grid"]);
        let period_ns = detail["tick_period_ns"].as_i64().unwrap();
        let (firsts, counts) = (column("state"), column("stays"));
        let more = column("more");
        let mut more = more.into_iter().map(|number| number as u64);
        let mut next = || more.next().expect("another number");
        let mut totals = Totals { entry_counts: vec![0; states.len()], ..Totals::default() };
        let (mut stays_ns, mut work_ns) = (vec![0; states.len()], 0);
        let mut last_ns: HashMap<(u64, usize), u64> = HashMap::new();
        for (((row, first), count), grid_ns) in rows.into_iter().zip(firsts).zip(counts).zip(grid) {
            let (gap_ns, first) = (row.gap as u64, first as usize);
            // The lines of the tick's grid, from the gap's start.
            let from_line_ns = (row.start - grid_ns).rem_euclid(period_ns);
            let lines = || ((period_ns - from_line_ns) as u64..).step_by(period_ns as usize);
            if count == 0 {
                totals.entry_counts[first] += 1;
                stays_ns[first] += gap_ns;
                totals.delay_ns += exit_ns(first);
                continue;
            }
            let (mut end_ns, mut delay_ns, mut wait_ns) = (0, 0, 0);
            for _ in 0..count {
                let head = next();
                let (state, kind, is_otherwise) = ((head / 64) as usize, head % 8, head % 16 > 7);
                match kind {
                    6 => {
                        totals.tick_count += next();
                        work_ns += next();
                        delay_ns = next();
                    }
                    7 => {
                        totals.entry_counts[state] += next();
                        stays_ns[state] += next();
                    }
                    _ => {
                        let at_ns = end_ns + wait_ns;
                        let (wait_ns_now, stay_ns) = match kind {
                            _ if is_otherwise => (next(), next()),
                            0 => (wait_ns, gap_ns - at_ns),
                            1 => {
                                (wait_ns, lines().find(|&line_ns| line_ns > at_ns).unwrap() - at_ns)
                            }
                            _ => (wait_ns, last_ns.get(&(kind, state)).copied().unwrap_or(0)),
                        };
                        last_ns.insert((kind, state), stay_ns);
                        totals.entry_counts[state] += 1;
                        stays_ns[state] += stay_ns;
                        end_ns += wait_ns_now + stay_ns;
                        let busy_ns = match kind {
                            0 | 2 => 0,
                            1 => exit_ns(state) + tick_work_ns,
                            3 => exit_ns(state),
                            other => panic!("kind {other}"),
                        };
                        work_ns += busy_ns;
                        wait_ns = busy_ns;
                        totals.tick_count += u64::from(kind == 1);
                        delay_ns = match kind {
                            0 => exit_ns(state),
                            // Until the last stay the event may still be ahead.
                            _ => (end_ns + busy_ns).saturating_sub(gap_ns),
                        };
                    }
                }
            }
            totals.delay_ns += delay_ns;
        }
        assert_eq!(more.next(), None, "every number is used");
        let energy_uj = |(index, state): (usize, &Value)| {
            let real = |name: &str| state[name].as_f64().unwrap();
            real("power_mw") * stays_ns[index] as f64 * 1e-6
                + real("transition_uj") * totals.entry_counts[index] as f64
        };
        let running_mw = machine["running_mw"].as_f64().unwrap();
        totals.energy_uj = states.iter().enumerate().map(energy_uj).sum::<f64>()
            + running_mw * work_ns as f64 * 1e-6;
        totals
    }
}
