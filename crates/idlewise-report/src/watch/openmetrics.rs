//! A reading as text for Prometheus: OpenMetrics 1.0 for whoever asks for it, and the older text format 0.0.4,
//! which `promtool check metrics` reads.
//!
//! Names follow the conventions of both: base units (seconds, joules) at the end of the name, `_total` after a
//! counter. The forms differ in three places. OpenMetrics names a counter's family without `_total`, has a line
//! for the unit, and ends with `# EOF`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use idlewise_trace::show_cpu_list;

use super::{CpuPlace, Grouping, Layout, Reading, StateReading};
use crate::shown::shown_in_line;

/// A text form of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's text format 0.0.4.
    Prometheus,
}

impl Form {
    /// Returns the value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Chooses the form for a request's `Accept`, as Prometheus's own libraries do.
    pub fn of_accept(accept: &str) -> Self {
        let is_wanted = |kind: &str| {
            let mut parts = kind.split(';').map(str::trim);
            let is_open = parts
                .next()
                .is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
            let is_refused =
                parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)));
            is_open && !is_refused
        };
        if accept.split(',').any(is_wanted) { Form::OpenMetrics } else { Form::Prometheus }
    }
}

/// What a metric does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It grows. Its samples are called `NAME_total`.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A metric, with all its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, without `_total`.
    pub name: &'static str,
    /// What it does.
    pub kind: Kind,
    /// The labels of each sample.
    pub labels: &'static [&'static str],
    /// What it is, in a sentence.
    pub help: &'static str,
}

impl Family {
    /// The unit in which its name ends, if it has one.
    fn unit(&self) -> Option<&'static str> {
        ["seconds", "joules"].into_iter().find(|unit| self.name.ends_with(unit))
    }

    /// Returns the name of its samples.
    pub fn sample_name(&self) -> Cow<'static, str> {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name).into(),
            Kind::Gauge => self.name.into(),
        }
    }
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, kind: Kind::Counter, labels, help }
}

/// A family that goes up and down.
pub(crate) const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, kind: Kind::Gauge, labels, help }
}

/// The labels of what is counted for each CPU, and for each state. Of a package or another group, its own label takes the
/// place of those of a CPU ([`Exposition::by`]).
const CPU: &[&str] = &["cpu", "package", "core"];
const STATE: &[&str] = &["cpu", "package", "core", "state"];
/// The labels of what a driver declares, which is the same for many CPUs.
const TABLE: &[&str] = &["state", "cpus"];

const RESIDENCY: Family = counter(
    "idlewise_state_residency_seconds",
    STATE,
    "Time requested in an idle state, counted by the kernel when a stay ends.",
);
const ENTRIES: Family =
    counter("idlewise_state_entries", STATE, "Entries of an idle state, counted by the kernel.");
const TOO_DEEP: Family = counter(
    "idlewise_state_too_deep",
    STATE,
    "Stays shorter than the state's target residency while a shallower state was enabled (the kernel's 'above').",
);
const TOO_SHALLOW: Family = counter(
    "idlewise_state_too_shallow",
    STATE,
    "Stays long enough for a deeper state that was enabled (the kernel's 'below').",
);
const REJECTED: Family = counter(
    "idlewise_state_rejected",
    STATE,
    "Requests for an idle state that the processor or the firmware refused.",
);
const DISABLED: Family = gauge(
    "idlewise_state_disabled",
    STATE,
    "On how many CPUs somebody disabled an idle state: of one CPU, 1 or 0.",
);
const EXIT_LATENCY: Family = gauge(
    "idlewise_state_exit_latency_seconds",
    TABLE,
    "Exit latency of an idle state, as the driver declares it.",
);
const TARGET_RESIDENCY: Family = gauge(
    "idlewise_state_target_residency_seconds",
    TABLE,
    "Target residency of an idle state, as the driver declares it.",
);
const READABLE: Family = gauge(
    "idlewise_cpu_readable",
    CPU,
    "How many CPUs could be read: of one CPU, 1, or 0 while it is offline.",
);
const IDLE: Family = counter(
    "idlewise_cpu_idle_seconds",
    CPU,
    "Idle time of CPUs by /proc/stat, which counts on during a stay.",
);
const CPU_LIMIT: Family = gauge(
    "idlewise_cpu_latency_limit_seconds",
    CPU,
    "Lowest limit of a CPU's exit latency (PM QoS); absent if there is none, 0 if it may only poll.",
);
const MACHINE_LIMIT: Family = gauge(
    "idlewise_latency_limit_seconds",
    &[],
    "Limit of the exit latency of all CPUs (/dev/cpu_dma_latency); absent if nobody holds one.",
);
const ENERGY: Family = counter(
    "idlewise_energy_joules",
    &["domain"],
    "Energy by the processor's counters (RAPL) since the exporter was started.",
);
const DRIVER: Family = gauge(
    "idlewise_cpuidle_info",
    &["driver", "governor", "kernel"],
    "The cpuidle driver, the governor and the kernel, always 1.",
);
const BUILD: Family = gauge(
    "idlewise_build_info",
    &["version", "commit"],
    "The version and the commit of idlewise, always 1.",
);
const READ: Family = gauge("idlewise_read_seconds", &[], "How long reading all counters took.");

/// All metrics, in the order in which they are written.
pub const FAMILIES: [Family; 16] = [
    RESIDENCY,
    ENTRIES,
    TOO_DEEP,
    TOO_SHALLOW,
    REJECTED,
    DISABLED,
    EXIT_LATENCY,
    TARGET_RESIDENCY,
    READABLE,
    IDLE,
    CPU_LIMIT,
    MACHINE_LIMIT,
    ENERGY,
    DRIVER,
    BUILD,
    READ,
];

/// What is exposed.
#[derive(Clone, Copy, Debug)]
pub struct Exposition<'a> {
    /// The CPUs and their states.
    pub layout: &'a Layout,
    /// Their counters.
    pub reading: &'a Reading,
    /// What a sample is about: a CPU, or the sum over a group of them.
    pub by: Grouping,
    /// idlewise's version.
    pub version: &'a str,
    /// idlewise's commit, if it is known.
    pub commit: Option<&'a str>,
    /// How long reading took.
    pub read_ns: u64,
}

/// Writes all metrics. What is not known has no sample, and a metric without samples is left out.
pub fn write_metrics(out: &mut String, form: Form, exposition: &Exposition<'_>) {
    let mut writer = Writer::new(out, form);
    let Exposition { layout, reading, .. } = *exposition;
    let slots: Vec<String> = layout.slots().iter().map(|slot| label(slot)).collect();
    let rows = rows(layout, reading, exposition.by);
    type OfState = fn(&Sum) -> Option<f64>;
    let of_states: [(&Family, OfState); 6] = [
        (&RESIDENCY, |sum| Some(seconds(sum.counted.residency_ns))),
        (&ENTRIES, |sum| Some(sum.counted.entry_count as f64)),
        (&TOO_DEEP, |sum| sum.counted.too_deep_count.map(|count| count as f64)),
        (&TOO_SHALLOW, |sum| sum.counted.too_shallow_count.map(|count| count as f64)),
        (&REJECTED, |sum| sum.counted.rejected_count.map(|count| count as f64)),
        (&DISABLED, |sum| Some(sum.disabled_count as f64)),
    ];
    for (family, value) in of_states {
        let samples = rows.iter().flat_map(|row| {
            let states = row.states.iter().zip(&slots);
            states.filter_map(move |(sum, slot)| {
                let state = format!("state=\"{slot}\"");
                let labels = [row.labels.as_str(), &state];
                Some((
                    labels.into_iter().filter(|one| !one.is_empty()).collect::<Vec<_>>().join(","),
                    value(sum.as_ref()?)?,
                ))
            })
        });
        writer.family(family, samples);
    }
    let mut tables: BTreeMap<(usize, u64, u64), Vec<u16>> = BTreeMap::new();
    let mut places = layout.slot_of_state().iter();
    for cpu in &layout.cpus {
        // `zip` takes one place too many if it comes second.
        for (info, slot) in cpu.states.iter().zip(places.by_ref()) {
            let key = (*slot, info.exit_latency_ns, info.target_residency_ns);
            tables.entry(key).or_default().push(cpu.cpu);
        }
    }
    for (family, is_exit) in [(&EXIT_LATENCY, true), (&TARGET_RESIDENCY, false)] {
        let samples = tables.iter().map(|((slot, exit_ns, target_ns), cpus)| {
            let labels = format!("state=\"{}\",cpus=\"{}\"", slots[*slot], show_cpu_list(cpus));
            (labels, seconds(if is_exit { *exit_ns } else { *target_ns }))
        });
        writer.family(family, samples);
    }
    type OfRow = fn(&Row) -> Option<f64>;
    let of_rows: [(&Family, OfRow); 3] = [
        (&READABLE, |row| Some(row.readable_count as f64)),
        (&IDLE, |row| row.idle_ns.map(seconds)),
        (&CPU_LIMIT, |row| row.limit_ns.map(seconds)),
    ];
    for (family, value) in of_rows {
        writer
            .family(family, rows.iter().filter_map(|row| Some((row.labels.clone(), value(row)?))));
    }
    if let Some(limit_ns) = reading.machine_limit_ns {
        writer.head(&MACHINE_LIMIT);
        writer.sample(format_args!(""), seconds(limit_ns));
    }
    for (index, (domain, uj)) in reading.energy_uj.iter().enumerate() {
        if index == 0 {
            writer.head(&ENERGY);
        }
        writer.sample(format_args!("{{domain=\"{}\"}}", label(domain)), uj / 1e6);
    }
    let or_none = |text: &Option<String>| label(text.as_deref().unwrap_or("none"));
    writer.head(&DRIVER);
    writer.sample(
        format_args!(
            "{{driver=\"{}\",governor=\"{}\",kernel=\"{}\"}}",
            or_none(&layout.driver),
            or_none(&layout.governor),
            or_none(&layout.kernel)
        ),
        1.0,
    );
    writer.head(&BUILD);
    let commit = exposition.commit.unwrap_or("unknown");
    writer.sample(
        format_args!("{{version=\"{}\",commit=\"{}\"}}", label(exposition.version), label(commit)),
        1.0,
    );
    writer.head(&READ);
    writer.sample(format_args!(""), seconds(exposition.read_ns));
    if form == Form::OpenMetrics {
        writer.out.push_str("# EOF\n");
    }
}

/// A CPU, or a group of them.
struct Row {
    labels: String,
    readable_count: u64,
    idle_ns: Option<u64>,
    limit_ns: Option<u64>,
    /// By the places of their names.
    states: Vec<Option<Sum>>,
}

/// What was counted of a state, over the CPUs of a row.
#[derive(Default)]
struct Sum {
    counted: StateReading,
    disabled_count: u64,
}

impl Sum {
    fn add(&mut self, more: &StateReading) {
        let sum = &mut self.counted;
        sum.entry_count = sum.entry_count.saturating_add(more.entry_count);
        sum.residency_ns = sum.residency_ns.saturating_add(more.residency_ns);
        sum.too_deep_count = sum_of(sum.too_deep_count, more.too_deep_count);
        sum.too_shallow_count = sum_of(sum.too_shallow_count, more.too_shallow_count);
        sum.rejected_count = sum_of(sum.rejected_count, more.rejected_count);
        self.disabled_count += u64::from(more.is_disabled);
    }
}

pub(crate) fn sum_of(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}

fn rows(layout: &Layout, reading: &Reading, by: Grouping) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut row_of_labels: HashMap<String, usize> = HashMap::new();
    let mut states = reading.states.iter().zip(layout.slot_of_state());
    for (place, cpu) in layout.cpus.iter().zip(&reading.cpus) {
        let labels = group_labels(place, by);
        let row = *row_of_labels.entry(labels).or_insert_with_key(|labels| {
            rows.push(Row {
                labels: labels.clone(),
                readable_count: 0,
                idle_ns: None,
                limit_ns: None,
                states: layout.slots().iter().map(|_| None).collect(),
            });
            rows.len() - 1
        });
        let row = &mut rows[row];
        row.readable_count += u64::from(cpu.is_readable);
        row.idle_ns = sum_of(row.idle_ns, cpu.idle_ns);
        row.limit_ns = [row.limit_ns, cpu.limit_ns].into_iter().flatten().min();
        for (_, (state, slot)) in place.states.iter().zip(states.by_ref()) {
            // A sum keeps what was counted of a CPU that is offline now.
            if cpu.is_readable || by != Grouping::Cpu {
                row.states[*slot].get_or_insert_default().add(state);
            }
        }
    }
    rows
}

fn group_labels(place: &CpuPlace, by: Grouping) -> String {
    let or_unknown =
        |number: Option<u64>| number.map_or("unknown".to_owned(), |number| number.to_string());
    match by {
        Grouping::Cpu => {
            let mut labels = format!("cpu=\"{}\"", place.cpu);
            for (name, number) in [("package", place.package), ("core", place.core)] {
                if let Some(number) = number {
                    let _ = write!(labels, ",{name}=\"{number}\"");
                }
            }
            labels
        }
        Grouping::Cache => format!("cache=\"{}\"", or_unknown(place.cache.map(u64::from))),
        Grouping::Package => format!("package=\"{}\"", or_unknown(place.package)),
        Grouping::Machine => String::new(),
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A label's value, escaped. Names of drivers and states are foreign text.
pub(crate) fn label(text: &str) -> String {
    shown_in_line(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Writes families of metrics.
pub(crate) struct Writer<'a> {
    out: &'a mut String,
    form: Form,
    /// The name of the samples that follow.
    name: Cow<'static, str>,
}

// Writing to a string cannot fail.
impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut String, form: Form) -> Self {
        Writer { out, form, name: Cow::Borrowed("") }
    }

    fn head(&mut self, family: &Family) {
        self.name = family.sample_name();
        let name = match self.form {
            Form::OpenMetrics => family.name,
            Form::Prometheus => &self.name,
        };
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(self.out, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
        if let (Form::OpenMetrics, Some(unit)) = (self.form, family.unit()) {
            let _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
    }

    /// Writes a family that has samples, each with its labels.
    pub(crate) fn family(&mut self, family: &Family, samples: impl Iterator<Item = (String, f64)>) {
        let mut is_first = true;
        for (labels, value) in samples {
            if std::mem::take(&mut is_first) {
                self.head(family);
            }
            match labels.is_empty() {
                true => self.sample(format_args!(""), value),
                false => self.sample(format_args!("{{{labels}}}"), value),
            }
        }
    }

    fn sample(&mut self, labels: std::fmt::Arguments<'_>, value: f64) {
        let _ = writeln!(self.out, "{}{labels} {value}", self.name);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::super::{CpuReading, StateInfo};
    use super::*;

    fn exposed(form: Form) -> String {
        exposed_by(form, Grouping::Cpu)
    }

    fn exposed_by(form: Form, by: Grouping) -> String {
        let state = |name: &str, exit_latency_ns| StateInfo {
            name: name.to_owned(),
            exit_latency_ns,
            target_residency_ns: 2 * exit_latency_ns,
        };
        let place = |cpu| CpuPlace {
            cpu,
            package: Some(0),
            core: Some(7),
            states: vec![state("C1", 1_000), state("C6 \"\\\u{1b}", 190_000)],
            ..CpuPlace::default()
        };
        let mut layout = Layout::new(vec![place(0), place(1)]);
        layout.driver = Some("intel_idle".to_owned());
        let counts = StateReading {
            entry_count: 1_000,
            residency_ns: 1_234_567_000,
            too_deep_count: Some(7),
            rejected_count: Some(0),
            ..StateReading::default()
        };
        let reading = Reading {
            cpus: vec![
                CpuReading { is_readable: true, idle_ns: Some(5_000_000_000), limit_ns: Some(0) },
                CpuReading::default(),
            ],
            states: vec![counts; 4],
            machine_limit_ns: Some(10_000),
            energy_uj: vec![("package-0".to_owned(), 1_500_000.0)],
            ..Reading::default()
        };
        let mut text = String::new();
        let exposition = Exposition {
            layout: &layout,
            reading: &reading,
            by,
            version: "1.2",
            commit: None,
            read_ns: 1_000_000,
        };
        write_metrics(&mut text, form, &exposition);
        text
    }

    /// Reads the text as strictly as OpenMetrics 1.0 asks for, and returns the samples: a name with its
    /// labels, and the value.
    fn parse(text: &str, form: Form) -> HashMap<String, f64> {
        let mut families: HashMap<String, (String, Option<String>)> = HashMap::new();
        let mut current = String::new();
        let mut samples = HashMap::new();
        let body = match form {
            Form::OpenMetrics => text.strip_suffix("# EOF\n").expect("it ends with # EOF"),
            Form::Prometheus => text,
        };
        assert!(!body.contains("# EOF") && !body.contains('\r') && !body.contains("\n\n"));
        for line in body.lines() {
            if let Some(meta) = line.strip_prefix("# ") {
                let mut words = meta.splitn(3, ' ');
                let (what, name) = (words.next().unwrap(), words.next().unwrap());
                let value = words.next().expect("something is said");
                match what {
                    "HELP" => {
                        assert!(value.ends_with('.') && !families.contains_key(name), "{line}");
                        current = name.to_owned();
                        families.insert(current.clone(), (String::new(), None));
                    }
                    "TYPE" => families.get_mut(name).unwrap().0 = value.to_owned(),
                    "UNIT" => {
                        assert!(
                            form == Form::OpenMetrics && name.ends_with(&format!("_{value}")),
                            "{line}"
                        );
                        families.get_mut(name).unwrap().1 = Some(value.to_owned());
                    }
                    _ => panic!("{line}"),
                }
                assert_eq!(name, current, "metadata of one family stands together");
                continue;
            }
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            let (labels, value) = labels(rest);
            let (kind, _) = &families[&current];
            match (kind.as_str(), form) {
                ("counter", Form::OpenMetrics) => assert_eq!(name, format!("{current}_total")),
                ("counter", Form::Prometheus) => {
                    assert!(name == current && name.ends_with("_total"), "{line}");
                }
                ("gauge", _) => assert!(name == current && !name.ends_with("_total"), "{line}"),
                _ => panic!("{line}: {kind}"),
            }
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            let value: f64 = value.trim_start().parse().unwrap();
            assert!(value.is_finite() && value >= 0.0, "{line}");
            assert!(samples.insert(format!("{name}{labels}"), value).is_none(), "twice: {line}");
        }
        samples
    }

    /// Splits `{a="b"} 1` behind the labels, and checks their names and escapes.
    fn labels(text: &str) -> (String, &str) {
        let Some(mut rest) = text.strip_prefix('{') else { return (String::new(), text) };
        let mut names = HashSet::new();
        loop {
            let (name, value) = rest.split_once("=\"").expect("a label");
            assert!(names.insert(name) && name.chars().all(|c| c.is_ascii_lowercase()), "{text}");
            let mut end = None;
            let mut characters = value.char_indices();
            while let Some((at, character)) = characters.next() {
                match character {
                    '"' => {
                        end = Some(at);
                        break;
                    }
                    '\\' => {
                        let (_, escaped) = characters.next().expect("what is escaped");
                        assert!(matches!(escaped, '\\' | '"' | 'n'), "{text}");
                    }
                    character => assert!(!character.is_control(), "{text}"),
                }
            }
            rest = &value[end.expect("an end") + 1..];
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    let rest = rest.strip_prefix('}').expect("a bracket");
                    return (text[..text.len() - rest.len()].to_owned(), rest);
                }
            }
        }
    }

    #[test]
    fn both_forms_are_well_formed_and_have_the_same_samples() {
        let open = parse(&exposed(Form::OpenMetrics), Form::OpenMetrics);
        let older = parse(&exposed(Form::Prometheus), Form::Prometheus);
        assert_eq!(open, older);
        assert_eq!(
            open["idlewise_state_residency_seconds_total{cpu=\"0\",package=\"0\",core=\"7\",state=\"C1\"}"],
            1.234567
        );
        let cpu = "cpu=\"0\",package=\"0\",core=\"7\"";
        assert_eq!(open[&format!("idlewise_state_too_deep_total{{{cpu},state=\"C1\"}}")], 7.0);
        let exit = "idlewise_state_exit_latency_seconds{state=\"C1\",cpus=\"0-1\"}";
        assert!((open[exit] - 1e-6).abs() < 1e-12);
        assert_eq!(open[&format!("idlewise_cpu_latency_limit_seconds{{{cpu}}}")], 0.0);
        assert_eq!(open["idlewise_energy_joules_total{domain=\"package-0\"}"], 1.5);
        assert_eq!(open["idlewise_build_info{version=\"1.2\",commit=\"unknown\"}"], 1.0);
    }

    #[test]
    fn a_group_has_the_sum_of_its_cpus() {
        for (by, labels) in [
            (Grouping::Package, "package=\"0\","),
            (Grouping::Machine, ""),
            (Grouping::Cache, "cache=\"unknown\","),
        ] {
            let found = parse(&exposed_by(Form::OpenMetrics, by), Form::OpenMetrics);
            let entries = format!("idlewise_state_entries_total{{{labels}state=\"C1\"}}");
            assert_eq!(found[&entries], 2_000.0, "{found:?}");
            let of_cpus = |name: &str| match labels.trim_end_matches(',') {
                "" => found[name],
                labels => found[&format!("{name}{{{labels}}}")],
            };
            assert_eq!(of_cpus("idlewise_cpu_readable"), 1.0);
            assert_eq!(of_cpus("idlewise_cpu_idle_seconds_total"), 5.0);
            assert_eq!(of_cpus("idlewise_cpu_latency_limit_seconds"), 0.0, "the lowest");
            assert!(found.keys().all(|name| !name.contains("cpu=")), "{found:?}");
        }
    }

    #[test]
    fn what_is_unknown_has_no_sample() {
        let text = exposed(Form::OpenMetrics);
        assert!(!text.contains("too_shallow"), "{text}");
        // CPU 1 cannot be read.
        assert_eq!(text.lines().filter(|line| line.contains("cpu=\"1\"")).count(), 1);
        assert!(text.contains("idlewise_cpu_readable{cpu=\"1\",package=\"0\",core=\"7\"} 0\n"));
    }

    #[test]
    fn every_family_has_the_labels_that_it_lists() {
        let text = exposed(Form::Prometheus);
        for family in FAMILIES.iter().filter(|family| **family != TOO_SHALLOW) {
            let name = family.sample_name();
            let line = text.lines().find(|line| {
                line.strip_prefix(&*name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            });
            let line = line.unwrap_or_else(|| panic!("{name}: {text}"));
            for label in family.labels {
                assert!(line.contains(&format!("{label}=\"")), "{line}");
            }
            assert_eq!(line.matches("=\"").count(), family.labels.len(), "{line}");
        }
    }

    #[test]
    fn the_form_is_what_is_asked_for() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        assert_eq!(Form::of_accept(prometheus), Form::OpenMetrics);
        assert_eq!(Form::of_accept("*/*"), Form::Prometheus);
        assert_eq!(Form::of_accept(""), Form::Prometheus);
        assert_eq!(Form::of_accept("application/openmetrics-text;q=0"), Form::Prometheus);
    }
}
