//! A reading as text for Prometheus: OpenMetrics 1.0 for whoever asks for it, and the older text format 0.0.4,
//! which `promtool check metrics` reads.
//!
//! Names follow the conventions of both: base units (seconds, joules) at the end of the name, `_total` after a
//! counter. The forms differ in three places. OpenMetrics names a counter's family without `_total`, has a line
//! for the unit, and ends with `# EOF`.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::{Layout, Reading, StateInfo, StateReading};
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
    /// The unit in which its name ends; empty if it has none.
    pub unit: &'static str,
    /// The labels of each sample.
    pub labels: &'static [&'static str],
    /// What it is, in a sentence.
    pub help: &'static str,
}

impl Family {
    /// Returns the name of its samples.
    pub fn sample_name(&self) -> Cow<'static, str> {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name).into(),
            Kind::Gauge => self.name.into(),
        }
    }
}

const fn family(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, kind, unit, labels, help }
}

/// The labels of what is counted for each state.
const STATE: &[&str] = &["cpu", "state"];

const RESIDENCY: Family = family(
    "idlewise_state_residency_seconds",
    Kind::Counter,
    "seconds",
    STATE,
    "Time requested in an idle state, counted by the kernel when a stay ends.",
);
const ENTRIES: Family = family(
    "idlewise_state_entries",
    Kind::Counter,
    "",
    STATE,
    "Entries of an idle state, counted by the kernel.",
);
const TOO_DEEP: Family = family(
    "idlewise_state_too_deep",
    Kind::Counter,
    "",
    STATE,
    "Stays shorter than the state's target residency while a shallower state was enabled (the kernel's 'above').",
);
const TOO_SHALLOW: Family = family(
    "idlewise_state_too_shallow",
    Kind::Counter,
    "",
    STATE,
    "Stays long enough for a deeper state that was enabled (the kernel's 'below').",
);
const REJECTED: Family = family(
    "idlewise_state_rejected",
    Kind::Counter,
    "",
    STATE,
    "Requests for an idle state that the processor or the firmware refused.",
);
const WAITED: Family = family(
    "idlewise_state_waited_seconds",
    Kind::Counter,
    "seconds",
    &["cpu", "state", "basis"],
    "Entries of an idle state times its exit latency; basis 'declared': the worst case that the driver declares.",
);
const DISABLED: Family = family(
    "idlewise_state_disabled",
    Kind::Gauge,
    "",
    STATE,
    "Whether somebody disabled an idle state of a CPU (1) or not (0).",
);
const EXIT_LATENCY: Family = family(
    "idlewise_state_exit_latency_seconds",
    Kind::Gauge,
    "seconds",
    STATE,
    "Exit latency of an idle state, as the driver declares it.",
);
const TARGET_RESIDENCY: Family = family(
    "idlewise_state_target_residency_seconds",
    Kind::Gauge,
    "seconds",
    STATE,
    "Target residency of an idle state, as the driver declares it.",
);
const READABLE: Family = family(
    "idlewise_cpu_readable",
    Kind::Gauge,
    "",
    &["cpu"],
    "Whether a CPU's counters could be read (1); they cannot while it is offline (0).",
);
const IDLE: Family = family(
    "idlewise_cpu_idle_seconds",
    Kind::Counter,
    "seconds",
    &["cpu"],
    "Idle time of a CPU by /proc/stat, which counts on during a stay.",
);
const CPU_LIMIT: Family = family(
    "idlewise_cpu_latency_limit_seconds",
    Kind::Gauge,
    "seconds",
    &["cpu"],
    "Limit of a CPU's exit latency (PM QoS); absent if it has none, 0 if it may only poll.",
);
const MACHINE_LIMIT: Family = family(
    "idlewise_latency_limit_seconds",
    Kind::Gauge,
    "seconds",
    &[],
    "Limit of the exit latency of all CPUs (/dev/cpu_dma_latency); absent if nobody holds one.",
);
const ENERGY: Family = family(
    "idlewise_energy_joules",
    Kind::Counter,
    "joules",
    &["domain"],
    "Energy by the processor's counters (RAPL) since the exporter was started.",
);
const DRIVER: Family = family(
    "idlewise_cpuidle_info",
    Kind::Gauge,
    "",
    &["driver", "governor", "kernel"],
    "The cpuidle driver, the governor and the kernel, always 1.",
);
const BUILD: Family = family(
    "idlewise_build_info",
    Kind::Gauge,
    "",
    &["version", "commit"],
    "The version and the commit of idlewise, always 1.",
);
const READ: Family = family(
    "idlewise_read_seconds",
    Kind::Gauge,
    "seconds",
    &[],
    "How long reading all counters took.",
);

/// All metrics, in the order in which they are written.
pub const FAMILIES: [Family; 17] = [
    RESIDENCY,
    ENTRIES,
    TOO_DEEP,
    TOO_SHALLOW,
    REJECTED,
    WAITED,
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
    /// idlewise's version.
    pub version: &'a str,
    /// idlewise's commit, if it is known.
    pub commit: Option<&'a str>,
    /// How long reading took.
    pub read_ns: u64,
}

/// Writes all metrics. What is not known has no sample, and a metric without samples is left out.
pub fn write_metrics(out: &mut String, form: Form, exposition: &Exposition<'_>) {
    let mut writer = Writer { out, form, name: Cow::Borrowed("") };
    let Exposition { layout, reading, .. } = *exposition;
    type OfState = fn(&StateReading, &StateInfo) -> Option<f64>;
    let of_states: [(&Family, OfState); 9] = [
        (&RESIDENCY, |state, _| Some(seconds(state.residency_ns))),
        (&ENTRIES, |state, _| Some(state.entry_count as f64)),
        (&TOO_DEEP, |state, _| state.too_deep_count.map(|count| count as f64)),
        (&TOO_SHALLOW, |state, _| state.too_shallow_count.map(|count| count as f64)),
        (&REJECTED, |state, _| state.rejected_count.map(|count| count as f64)),
        // Multiplied as whole numbers, so that the text has no more digits than the figures.
        (&WAITED, |state, info| {
            Some(seconds(state.entry_count.saturating_mul(info.exit_latency_ns)))
        }),
        (&DISABLED, |state, _| Some(f64::from(u8::from(state.is_disabled)))),
        (&EXIT_LATENCY, |_, info| Some(seconds(info.exit_latency_ns))),
        (&TARGET_RESIDENCY, |_, info| Some(seconds(info.target_residency_ns))),
    ];
    let slots: Vec<String> = layout.slots().iter().map(|slot| label(slot)).collect();
    for (family, value) in of_states {
        let mut is_first = true;
        let mut states = reading.states.iter().zip(layout.slot_of_state());
        for (place, cpu) in layout.cpus.iter().zip(&reading.cpus) {
            // `zip` takes one state too many if it comes second.
            for (info, (state, slot)) in place.states.iter().zip(states.by_ref()) {
                let Some(value) = value(state, info).filter(|_| cpu.is_readable) else { continue };
                if is_first {
                    writer.head(family);
                    is_first = false;
                }
                let basis = if *family == WAITED { ",basis=\"declared\"" } else { "" };
                let (cpu, slot) = (place.cpu, &slots[*slot]);
                writer.sample(format_args!("{{cpu=\"{cpu}\",state=\"{slot}\"{basis}}}"), value);
            }
        }
    }
    type OfCpu = fn(&super::CpuReading) -> Option<f64>;
    let of_cpus: [(&Family, OfCpu); 3] = [
        (&READABLE, |cpu| Some(f64::from(u8::from(cpu.is_readable)))),
        (&IDLE, |cpu| cpu.idle_ns.map(seconds)),
        (&CPU_LIMIT, |cpu| cpu.limit_ns.map(seconds)),
    ];
    for (family, value) in of_cpus {
        let all = layout.cpus.iter().zip(&reading.cpus);
        let known = all.filter_map(|(place, cpu)| Some((place.cpu, value(cpu)?)));
        for (index, (cpu, value)) in known.enumerate() {
            if index == 0 {
                writer.head(family);
            }
            writer.sample(format_args!("{{cpu=\"{cpu}\"}}"), value);
        }
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

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A label's value, escaped. Names of drivers and states are foreign text.
fn label(text: &str) -> String {
    shown_in_line(text).replace('\\', "\\\\").replace('"', "\\\"")
}

struct Writer<'a> {
    out: &'a mut String,
    form: Form,
    /// The name of the samples that follow.
    name: Cow<'static, str>,
}

// Writing to a string cannot fail.
impl Writer<'_> {
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
        if self.form == Form::OpenMetrics && !family.unit.is_empty() {
            let _ = writeln!(self.out, "# UNIT {name} {}", family.unit);
        }
    }

    fn sample(&mut self, labels: std::fmt::Arguments<'_>, value: f64) {
        let _ = writeln!(self.out, "{}{labels} {value}", self.name);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::super::{CpuPlace, CpuReading};
    use super::*;

    fn exposed(form: Form) -> String {
        let state = |name: &str, exit_latency_ns| StateInfo {
            name: name.to_owned(),
            exit_latency_ns,
            target_residency_ns: 2 * exit_latency_ns,
        };
        let place = |cpu| CpuPlace {
            cpu,
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
            open["idlewise_state_residency_seconds_total{cpu=\"0\",state=\"C1\"}"],
            1.234567
        );
        assert_eq!(open["idlewise_state_too_deep_total{cpu=\"0\",state=\"C1\"}"], 7.0);
        let waited =
            "idlewise_state_waited_seconds_total{cpu=\"0\",state=\"C1\",basis=\"declared\"}";
        assert!((open[waited] - 0.001).abs() < 1e-12);
        assert_eq!(open["idlewise_cpu_latency_limit_seconds{cpu=\"0\"}"], 0.0);
        assert_eq!(open["idlewise_energy_joules_total{domain=\"package-0\"}"], 1.5);
        assert_eq!(open["idlewise_build_info{version=\"1.2\",commit=\"unknown\"}"], 1.0);
    }

    #[test]
    fn what_is_unknown_has_no_sample() {
        let text = exposed(Form::OpenMetrics);
        assert!(!text.contains("too_shallow"), "{text}");
        // CPU 1 cannot be read.
        assert_eq!(text.lines().filter(|line| line.contains("cpu=\"1\"")).count(), 1);
        assert!(text.contains("idlewise_cpu_readable{cpu=\"1\"} 0\n"));
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
            assert!(family.unit.is_empty() || family.name.ends_with(family.unit), "{name}");
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
