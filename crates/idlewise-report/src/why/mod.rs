//! What `idlewise why` says: what the kernel's counts of idle states cost, without a trace.
//!
//! The kernel counts stays, their time and its own misses. It does not count what anybody waited for.
//! Stays × exit latency is therefore an upper bound of the time that wake-ups waited: it takes every stay
//! for one that something waited for, and every exit for the slowest. It is never more than the time in the state.
//!
//! A state is worth a finding if that bound reaches [`WAITING_MIN`] of wall time. It is compared with the
//! deepest enabled state that has at most half its exit latency: the stays move there, for the same time.

mod condition;
mod package;
mod textfile;

pub use condition::{Condition, JudgedCondition, Measure};
use idlewise_sim::{Basis, CostModel};
use idlewise_trace::{cpu_list_in_words, short_cpu_list};
pub use package::{PackageCpu, PackageState, WhyPackage};
use serde::Serialize;
use serde_json::json;

use crate::notes::wrap;
use crate::{Column, Notes, Table, TextStyle, Value, counted, time_words};

/// Waiting below this share of wall time is left alone.
pub const WAITING_MIN: f64 = 0.01;
/// A state whose entries are refused at least so often a second is worth a finding.
const REFUSED_PER_S_MIN: f64 = 1.0;
/// A state is used too often if this share of its stays would have paid for a deeper one ...
const TOO_SHALLOW_MIN: f64 = 0.5;
/// ... and if it takes this share of the time.
const TOO_SHALLOW_TIME_MIN: f64 = 0.1;
/// The alternative has at most this share of the exit latency.
const SHALLOWER_LATENCY_MAX: f64 = 0.5;
/// A screen.
const LINE_COUNT_MAX: usize = 40;
/// Empty lines, the table's heading of up to five lines, and the line below it.
const LINES_AROUND: usize = 10;
/// So many rows are shown even if they exceed the screen.
const ROW_COUNT_MIN: usize = 4;
const FINDING_COUNT_MAX: usize = 4;
/// A longer list is not for typing.
const CPU_LIST_BYTE_COUNT_MAX: usize = 60;

/// CPUs that behaved alike, and what they counted together.
#[derive(Clone, Debug)]
pub struct WhyGroup {
    /// The CPUs as a list, such as `0-3,8`.
    pub cpus: String,
    /// How many they are.
    pub cpu_count: usize,
    /// The kind of their cores, on a machine that has several.
    pub core: Option<String>,
    /// The time that was watched, summed over the CPUs.
    pub watched_ns: u64,
    /// The longest exit latency that PM QoS allows them now; `None`: no limit.
    pub latency_limit_ns: Option<u64>,
    /// The states, shallowest first.
    pub states: Vec<WhyState>,
    /// The costs of the states.
    pub costs: CostModel,
    /// The basis of the powers.
    pub power_basis: Basis,
}

/// A state of a group, with its counts summed over the CPUs.
#[derive(Clone, Debug, Default)]
pub struct WhyState {
    /// Its name.
    pub name: String,
    /// Its exit latency.
    pub exit_latency_ns: u64,
    /// Whether the exit latency was measured on this machine.
    pub is_measured: bool,
    /// Whether it polls.
    pub is_polling: bool,
    /// Whether somebody disabled it.
    pub is_disabled: bool,
    /// Stays.
    pub stay_count: u64,
    /// Their time.
    pub time_ns: u64,
    /// Too deep by the kernel's count, if it counts.
    pub too_deep_count: Option<u64>,
    /// Too shallow by the kernel's count, if it counts.
    pub too_shallow_count: Option<u64>,
    /// Refused entries, if the kernel counts them.
    pub rejected_count: Option<u64>,
}

/// Everything that `idlewise why` found out.
#[derive(Clone, Debug)]
pub struct WhyReport {
    /// How long it watched.
    pub elapsed_ns: u64,
    /// Whether it was ended before its time.
    pub is_cut_short: bool,
    /// Whether this is a virtual machine, whose host has idle states of its own.
    pub is_guest: bool,
    /// The CPU's model, if known.
    pub cpu_model: Option<String>,
    /// The kernel's release, if known.
    pub kernel: Option<String>,
    /// The idle driver, if known.
    pub driver: Option<String>,
    /// The governor, if known.
    pub governor: Option<String>,
    /// The groups.
    pub groups: Vec<WhyGroup>,
    /// How often the tolerances of the grouping had to be doubled: 1, 2, 4, ...
    pub group_scale: f64,
    /// CPUs that are in no group, and why.
    pub left_out: Vec<(u16, String)>,
    /// The share of the time in which its CPUs were busy; `None` if the machine does not say.
    pub busy_ratio: Option<f64>,
    /// Packages whose states the processor counts.
    pub packages: Vec<WhyPackage>,
    /// What the user's conditions came to.
    pub conditions: Vec<JudgedCondition>,
    /// Bases and doubts.
    pub notes: Notes,
}

/// From this share on, a busy machine has no idle states to judge.
const BUSY_MIN: f64 = 0.99;
/// With less of the time in stays that ended, there is nothing to judge either.
const COUNTED_MIN: f64 = 0.01;
/// Idle time of which no more than this share was counted may be other than what was.
const UNCOUNTED_MAX: f64 = 0.5;

/// One finding.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    cpus: String,
    state: String,
    kind: &'static str,
    waiting_ratio: Option<f64>,
    instead: Option<Instead>,
    text: String,
}

/// What another state would change.
#[derive(Clone, Debug, Serialize)]
struct Instead {
    state: String,
    /// Of the share of wall time that wake-ups wait at most.
    #[serde(rename = "waiting_change_ratio")]
    waiting_ratio: f64,
    /// Of all CPUs of the group together.
    #[serde(rename = "power_change_mw")]
    power_mw: f64,
    #[serde(rename = "power_basis")]
    basis: Basis,
}

impl WhyState {
    fn share(&self, count: Option<u64>) -> Option<f64> {
        (self.stay_count > 0).then(|| count.map(|count| count as f64 / self.stay_count as f64))?
    }
}

impl WhyGroup {
    fn seconds(&self) -> f64 {
        (self.watched_ns as f64 / 1e9).max(1e-9)
    }

    fn time_ratio(&self, state: &WhyState) -> f64 {
        (state.time_ns as f64 / self.watched_ns.max(1) as f64).min(1.0)
    }

    /// Stays a second of one CPU.
    fn rate(&self, state: &WhyState) -> f64 {
        state.stay_count as f64 / self.seconds()
    }

    /// The share of wall time that wake-ups wait at most.
    fn waiting_ratio(&self, state: &WhyState) -> f64 {
        // Nobody waits for an exit longer than the state lasts: the kernel counts its time until the CPU runs again. A
        // stay counts as a whole when it ends, so the time may be more than the interval.
        self.exits_ratio(state, state.exit_latency_ns).min(self.time_ratio(state))
    }

    /// Stays × exit latency as a share of wall time. Where the table's worst case is far from the truth, it may be more
    /// than there is.
    fn exits_ratio(&self, state: &WhyState, exit_latency_ns: u64) -> f64 {
        self.rate(state) * exit_latency_ns as f64 / 1e9
    }

    /// Whether anything was counted.
    fn has_counted(&self) -> bool {
        self.has_refused() || self.states.iter().any(|state| state.stay_count > 0)
    }

    /// Whether entries were refused.
    fn has_refused(&self) -> bool {
        self.states.iter().any(|state| state.rejected_count > Some(0))
    }

    /// `CPU 3`, `CPUs 0-3` or `CPUs 0-3 (P core)`.
    fn title(&self) -> String {
        let core = self.core.as_ref().map_or(String::new(), |core| format!(" ({core})"));
        cpu_list_in_words(&self.cpus, self.cpu_count) + &core
    }

    /// What it would change if the stays of a state were spent in a shallower one.
    fn instead_of(&self, index: usize) -> Option<Instead> {
        let state = &self.states[index];
        let most_ns = state.exit_latency_ns as f64 * SHALLOWER_LATENCY_MAX;
        let fits = |other: &WhyState| {
            !other.is_polling && !other.is_disabled && other.exit_latency_ns as f64 <= most_ns
        };
        let other = (0..index).rev().find(|&other| fits(&self.states[other]))?;
        let energy_uj = |place: usize| self.costs.stays_uj(place, state.stay_count, state.time_ns);
        // µJ in a second of wall time; the sum over the CPUs is the group's.
        let wall_s = self.seconds() / self.cpu_count.max(1) as f64;
        let waiting_ratio = self.waiting_ratio(state);
        let left = self.exits_ratio(state, self.states[other].exit_latency_ns).min(waiting_ratio);
        Some(Instead {
            state: self.states[other].name.clone(),
            waiting_ratio: left - waiting_ratio,
            power_mw: (energy_uj(other) - energy_uj(index)) / wall_s / 1e3,
            basis: self.power_basis,
        })
    }

    fn findings(&self) -> Vec<Finding> {
        let all = (0..self.states.len()).filter_map(|index| {
            self.waits(index).or_else(|| self.is_refused(index)).or_else(|| self.is_shallow(index))
        });
        all.collect()
    }

    fn waits(&self, index: usize) -> Option<Finding> {
        let state = &self.states[index];
        let waiting_ratio = self.waiting_ratio(state);
        if waiting_ratio < WAITING_MIN {
            return None;
        }
        let too_deep = match state.share(state.too_deep_count) {
            Some(share) => format!("{} too deep, ", percent(share)),
            None => String::new(),
        };
        let is_bounded = self.exits_ratio(state, state.exit_latency_ns) > waiting_ratio;
        let is = if is_bounded { ", but no more than it lasted:" } else { " =" };
        let mut text = format!(
            "{} on {}: {too_deep}{} wake-ups/s × {}{is} {} of wall time waiting at most",
            state.name,
            self.title(),
            grouped(self.rate(state)),
            time(state.exit_latency_ns),
            percent(waiting_ratio),
        );
        let instead = self.instead_of(index);
        text += &match &instead {
            Some(instead) => format!(
                "; {} instead: {} points, about {} ({})",
                instead.state,
                signed(instead.waiting_ratio * 100.0, 0),
                power(instead.power_mw),
                instead.basis.as_str(),
            ),
            None => "; no shallower state is enabled, except to poll".to_owned(),
        };
        Some(self.finding(index, "waits", Some(waiting_ratio), instead, text))
    }

    fn is_refused(&self, index: usize) -> Option<Finding> {
        let state = &self.states[index];
        let refused = state.rejected_count?;
        let rate = refused as f64 / self.seconds();
        if rate < REFUSED_PER_S_MIN || refused < state.stay_count {
            return None;
        }
        let text = format!(
            "{} on {}: refused {} times a second and entered {} times; the driver or the firmware does \
             not do what it offers: disable it, or update the firmware",
            state.name,
            self.title(),
            grouped(rate),
            grouped(self.rate(state)),
        );
        Some(self.finding(index, "refused", None, None, text))
    }

    fn is_shallow(&self, index: usize) -> Option<Finding> {
        let state = &self.states[index];
        let share = state.share(state.too_shallow_count)?;
        let time_ratio = self.time_ratio(state);
        if share < TOO_SHALLOW_MIN || time_ratio < TOO_SHALLOW_TIME_MIN {
            return None;
        }
        let text = format!(
            "{} on {}: {} of the time, and {} of its stays were long enough for a deeper state{}",
            state.name,
            self.title(),
            percent(time_ratio),
            percent(share),
            match self.latency_limit_ns {
                Some(limit_ns) => format!("; a latency limit of {} holds", time(limit_ns)),
                None => String::new(),
            },
        );
        Some(self.finding(index, "too-shallow", None, None, text))
    }

    fn finding(
        &self,
        index: usize,
        kind: &'static str,
        waiting_ratio: Option<f64>,
        instead: Option<Instead>,
        text: String,
    ) -> Finding {
        let state = self.states[index].name.clone();
        Finding { cpus: self.cpus.clone(), state, kind, waiting_ratio, instead, text }
    }
}

/// A state of a group.
pub struct WhyRow<'a> {
    group: &'a WhyGroup,
    state: &'a WhyState,
}

type C<'a> = Column<WhyRow<'a>>;

fn cpus_column<'a>(list: fn(&WhyRow<'a>) -> Value) -> C<'a> {
    C::text("cpus", "CPUs", list).means("CPUs that behaved alike.").key()
}

/// Returns the columns.
pub fn columns<'a>() -> Vec<C<'a>> {
    vec![
        cpus_column(|row| row.group.cpus.as_str().into()),
        C::text("state", "state", |row| row.state.name.as_str().into())
            .means("An idle state.")
            .key(),
        C::ratio("time_ratio", "time", |row| row.group.time_ratio(row.state).into())
            .means("Share of wall time in the state. A stay counts when it ends."),
        C::per_s("stays_per_s", "stays", |row| row.group.rate(row.state).into())
            .means("Stays that ended, for each CPU."),
        C::ratio("too_deep_ratio", "too deep", |row| {
            row.state.share(row.state.too_deep_count).into()
        })
        .means(
            "Share of stays that were too deep (the kernel's `above`); absent before Linux 5.0.",
        ),
        C::ratio("too_shallow_ratio", "too shallow", |row| {
            row.state.share(row.state.too_shallow_count).into()
        })
        .means(
            "Share of stays that were too shallow (the kernel's `below`); absent before Linux 5.0.",
        ),
        C::per_s("rejected_per_s", "refused", |row| {
            row.state.rejected_count.map(|count| count as f64 / row.group.seconds()).into()
        })
        .means("Entries that the driver or the firmware refused (`rejected`), for each CPU.")
        .detail(),
        C::ns("exit_latency_ns", "exit latency", |row| row.state.exit_latency_ns.into()).means(
            "Its exit latency: measured if --machine names a measured file, otherwise the \
             table's worst case.",
        ),
        C::ratio("waiting_ratio", "waiting at most", |row| {
            row.group.waiting_ratio(row.state).into()
        })
        .means(
            "Stays × exit latency, at most the time in the state, as a share of wall time: the \
             most that wake-ups can have waited for exits.",
        ),
        C::text(
            "setting",
            "",
            |row| {
                if row.state.is_disabled { "off".into() } else { Value::Absent }
            },
        )
        .means("`off` if somebody disabled the state.")
        .detail(),
    ]
}

impl WhyReport {
    fn rows(&self) -> impl Iterator<Item = WhyRow<'_>> {
        let rows = |group| move |state| WhyRow { group, state };
        self.groups.iter().flat_map(move |group| group.states.iter().map(rows(group)))
    }

    /// The share of the time that is in stays that ended.
    pub fn counted_ratio(&self) -> f64 {
        let counted_ns: f64 = self.rows().map(|row| row.state.time_ns as f64).sum();
        let watched_ns: f64 = self.groups.iter().map(|group| group.watched_ns as f64).sum();
        (counted_ns / watched_ns.max(1.0)).min(1.0)
    }

    /// Whether so little was counted that nothing can be said, and no entry was refused either.
    pub fn is_silent(&self) -> bool {
        self.counted_ratio() < COUNTED_MIN && !self.groups.iter().any(WhyGroup::has_refused)
    }

    /// How much of the idle time was counted, if it is so little that the rest might say something else. A stay that has
    /// not ended is in no count.
    pub fn uncounted(&self) -> Option<String> {
        let (counted, idle) = (self.counted_ratio(), 1.0 - self.busy_ratio?);
        (counted < UNCOUNTED_MAX * idle).then(|| {
            format!(
                "CPUs were idle for {} of the time, and only {} is in stays that ended; watch for longer: -d 60",
                percent(idle),
                percent(counted)
            )
        })
    }

    /// Returns the findings, the longest waiting first.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.groups.iter().flat_map(WhyGroup::findings).collect();
        let weight = |finding: &Finding| finding.waiting_ratio.unwrap_or(0.0);
        findings.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        findings
    }

    /// Whether the kernel counts misses.
    fn counts_misses(&self) -> bool {
        self.rows().any(|row| row.state.too_deep_count.is_some())
    }

    /// What these numbers cannot say, a line each.
    pub fn limits(&self) -> Vec<String> {
        // Nobody measures polling's, and where there is nothing else, nothing was measured.
        let mut exits = self.rows().filter(|row| !row.state.is_polling).peekable();
        let is_measured = exits.peek().is_some() && exits.all(|row| row.state.is_measured);
        let limits = [
            "Waiting: an upper bound, as if a task waited at each exit; a recording tells who did.",
            match is_measured {
                true => "Exit latency: measured on this machine.",
                false => {
                    "Exit latency: the worst case that the driver declares, not measured here."
                }
            },
            "Time: in the state that the kernel requested; the hardware may have used another.",
            match self.counts_misses() {
                true => {
                    "Too deep: stays shorter than the target residency, whether anyone waited or not."
                }
                false => "Misses: not counted by this kernel; Linux does since 5.0.",
            },
        ];
        limits.into_iter().map(str::to_owned).collect()
    }

    /// Returns a text that fits on a screen.
    pub fn to_text(&self, style: &TextStyle) -> String {
        let width = style.width;
        let failed = self.conditions.iter().filter(|condition| condition.failed);
        let mut answer: Vec<String> = failed.map(|it| wrap(&it.text, width, 2)).collect();
        let findings = self.findings();
        match findings.is_empty() {
            true => answer.push(wrap(&self.nothing(), width, 0)),
            false => {
                let shown = findings.iter().take(FINDING_COUNT_MAX);
                answer.extend(shown.map(|finding| wrap(&finding.text, width, 2)));
            }
        }
        if findings.len() > FINDING_COUNT_MAX {
            answer.push(format!(
                "{} more findings; --json has them.",
                findings.len() - FINDING_COUNT_MAX
            ));
        }
        if let Some(first) = findings.iter().find(|finding| finding.instead.is_some()) {
            // A long list would fill lines.
            let is_long = first.cpus.len() > CPU_LIST_BYTE_COUNT_MAX;
            let cpus = if is_long { "" } else { &format!(" --cpus {}", first.cpus) };
            let next = format!(
                "Next: `idlewise advise -d 30{cpus}` judges what to change, on a recording."
            );
            answer.push(wrap(&next, width, 2));
        }
        let packages = package::sentences(&self.packages);
        answer.extend(packages.iter().map(|sentence| wrap(sentence, width, 2)));
        let answer = answer.join("\n");
        let mut limits: Vec<String> =
            self.limits().iter().map(|limit| wrap(limit, width, 2)).collect();
        limits.push(self.notes.to_text(width));
        let below = limits.join("\n");
        let head = wrap(&self.head(), width, 0);
        let lines = |text: &str| text.lines().count();
        let taken = lines(&answer) + lines(&head) + lines(&below) + LINES_AROUND;
        let table = self.table(style, LINE_COUNT_MAX.saturating_sub(taken).max(ROW_COUNT_MIN));
        let parts = [&answer, &head, table.trim_end(), below.trim_end()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n") + "\n"
    }

    /// The states that matter most, in their order.
    fn table(&self, style: &TextStyle, row_count_max: usize) -> String {
        let is_used = |row: &WhyRow<'_>| {
            row.state.stay_count > 0 || row.state.rejected_count.unwrap_or(0) > 0
        };
        let mut rows: Vec<(usize, WhyRow<'_>)> = self.rows().enumerate().collect();
        let all_count = rows.len();
        rows.retain(|(_, row)| is_used(row));
        let weight = |row: &WhyRow<'_>| {
            row.group.waiting_ratio(row.state).max(row.group.time_ratio(row.state))
        };
        rows.sort_by(|(_, a), (_, b)| weight(b).total_cmp(&weight(a)));
        rows.truncate(row_count_max);
        rows.sort_by_key(|(place, _)| *place);
        let hidden_count = all_count - rows.len();
        let mut columns = columns();
        columns[0] =
            cpus_column(|row| short_cpu_list(&row.group.cpus, row.group.cpu_count).as_ref().into());
        let table = Table::new("", &columns, rows.into_iter().map(|(_, row)| row));
        let mut text = String::new();
        if table.row_count() > 0 {
            text += &table.to_text(style);
        }
        if hidden_count > 0 {
            let rows = counted(hidden_count, "row");
            text +=
                &format!("{rows} not shown, of states that were hardly used; --json has all.\n");
        }
        text
    }

    fn head(&self) -> String {
        let cpu_count: usize = self.groups.iter().map(|group| group.cpu_count).sum();
        let known = [
            self.cpu_model.clone(),
            self.driver.as_ref().map(|driver| format!("driver {driver}")),
            self.governor.as_ref().map(|governor| format!("governor {governor}")),
            self.kernel.as_ref().map(|kernel| format!("Linux {kernel}")),
        ];
        let mut head =
            format!("{:.1} s on {}", self.elapsed_ns as f64 / 1e9, counted(cpu_count, "CPU"));
        if self.is_cut_short {
            head += " (ended early)";
        }
        for known in known.into_iter().flatten() {
            head += ", ";
            head += &known;
        }
        head
    }

    /// What a busy machine is told instead of a judgement: `CPUs 0-1 were 100 % busy: nothing to judge`. `None` if
    /// they were idle for more than one percent of the time.
    pub fn is_busy(&self) -> Option<String> {
        let ratio = self.busy_ratio.filter(|ratio| *ratio >= BUSY_MIN)?;
        let is_one = self.groups.len() == 1 && self.groups[0].cpu_count == 1;
        Some(format!(
            "{} {} {:.0} % busy for {:.1} s: nothing to judge; run it again while the machine has less to do",
            in_words(self.groups.iter())?,
            if is_one { "was" } else { "were" },
            100.0 * ratio,
            self.elapsed_ns as f64 / 1e9
        ))
    }

    fn nothing(&self) -> String {
        if let Some(busy) = self.is_busy() {
            return format!("{busy}.");
        }
        let most = self.rows().map(|row| row.group.waiting_ratio(row.state)).fold(0.0, f64::max);
        let (head, tail) = match self.is_guest {
            true => (
                "Leave this guest alone",
                " Its host's idle states are not visible here: run `why` on the host, too.",
            ),
            false => ("Leave it alone", ""),
        };
        format!(
            "{head}: no state makes wake-ups wait for more than {} of wall time, none is refused, and none is used \
             where a deeper one would pay.{tail}",
            percent(most.max(0.001))
        )
    }

    /// Returns everything for JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let groups = self.groups.iter().map(|group| {
            json!({
                "cpus": group.cpus,
                "cpu_count": group.cpu_count,
                "core": group.core,
                "watched_ns": group.watched_ns,
                "latency_limit_ns": group.latency_limit_ns,
            })
        });
        let left_out = self.left_out.iter().map(|(cpu, why)| json!({ "cpu": cpu, "reason": why }));
        let packages = self.packages.iter().map(|package| {
            json!({ "package": package.name, "states": package.states, "reason": package.reason() })
        });
        json!({
            "elapsed_ns": self.elapsed_ns,
            "ended_early": self.is_cut_short,
            "is_guest": self.is_guest,
            "cpu_model": self.cpu_model,
            "kernel": self.kernel,
            "driver": self.driver,
            "governor": self.governor,
            "groups": groups.collect::<Vec<_>>(),
            "group_scale": self.group_scale,
            "rows": Table::new("", &columns(), self.rows()),
            "findings": self.findings(),
            "packages": packages.collect::<Vec<_>>(),
            "conditions": self.conditions,
            "left_out": left_out.collect::<Vec<_>>(),
            "limits": self.limits(),
            "bases": self.notes.bases_json(),
            "doubts": self.notes.counted_doubts(),
        })
    }
}

/// The CPUs of groups.
fn in_words<'a>(groups: impl Iterator<Item = &'a WhyGroup>) -> Option<String> {
    let (lists, counts): (Vec<&str>, Vec<usize>) =
        groups.map(|group| (group.cpus.as_str(), group.cpu_count)).unzip();
    (!lists.is_empty()).then(|| cpu_list_in_words(&lists.join(","), counts.iter().sum()))
}

/// A share in percent, with a decimal below ten.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

fn signed(number: f64, decimals: usize) -> String {
    let sign = if number < 0.0 { '−' } else { '+' };
    format!("{sign}{:.decimals$}", number.abs())
}

fn power(power_mw: f64) -> String {
    if power_mw.abs() < 1_000.0 {
        format!("{} mW", signed(power_mw, 0))
    } else {
        format!("{} W", signed(power_mw / 1_000.0, 1))
    }
}

/// A time beside settings, which are typed with `us`.
fn time(ns: u64) -> String {
    time_words(ns as f64).replace('µ', "u")
}

/// A number with commas, with a decimal below ten.
fn grouped(number: f64) -> String {
    if number < 10.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use idlewise_core::{IdleState, StateTable};

    use super::*;

    /// Four CPUs for ten seconds, with 1,840 stays a second in C6.
    fn group() -> WhyGroup {
        let c1e = IdleState::new(10_000, 20_000);
        let c6 = IdleState::new(190_000, 600_000);
        let states = StateTable::new(&[IdleState::POLL, c1e, c6]).unwrap();
        let state = |name: &str, exit_latency_ns| WhyState {
            name: name.to_owned(),
            exit_latency_ns,
            too_deep_count: Some(0),
            too_shallow_count: Some(0),
            rejected_count: Some(0),
            ..WhyState::default()
        };
        let used = WhyState {
            stay_count: 4 * 18_400,
            time_ns: 4 * 5_000_000_000,
            too_deep_count: Some(22_816),
            ..state("C6", 190_000)
        };
        WhyGroup {
            cpus: "4-7".to_owned(),
            cpu_count: 4,
            core: None,
            watched_ns: 40_000_000_000,
            latency_limit_ns: None,
            states: vec![
                WhyState { is_polling: true, ..state("POLL", 0) },
                state("C1E", 10_000),
                used,
            ],
            costs: CostModel::new(states, &[4_000.0, 1_000.0, 100.0], 4_000.0),
            power_basis: Basis::Assumed,
        }
    }

    fn report(groups: Vec<WhyGroup>) -> WhyReport {
        WhyReport {
            elapsed_ns: 10_000_000_000,
            is_cut_short: false,
            is_guest: false,
            cpu_model: None,
            kernel: None,
            driver: Some("intel_idle".to_owned()),
            governor: None,
            groups,
            group_scale: 1.0,
            left_out: Vec::new(),
            busy_ratio: None,
            packages: Vec::new(),
            conditions: Vec::new(),
            notes: Notes::default(),
        }
    }

    #[test]
    fn a_busy_machine_is_not_judged() {
        let mut group = group();
        (group.states[2].stay_count, group.states[2].time_ns) = (3, 3_000_000);
        let text = |busy_ratio| {
            let report = WhyReport { busy_ratio, ..report(vec![group.clone()]) };
            report.to_text(&TextStyle::default())
        };
        let busy = text(Some(0.9996));
        assert!(busy.contains("CPUs 4-7 were 100 % busy for 10.0 s: nothing to judge"), "{busy}");
        assert!(!busy.contains("Leave it alone"), "{busy}");
        assert!(text(Some(0.9)).contains("Leave it alone"));
        assert!(text(None).contains("Leave it alone"));
    }

    /// A CPU may sleep beyond the end of the interval, and that stay is in no count.
    #[test]
    fn idle_time_that_was_not_counted_is_a_doubt() {
        // Half of the time is in stays that ended.
        let uncounted = |busy_ratio| WhyReport { busy_ratio, ..report(vec![group()]) }.uncounted();
        assert_eq!(
            (uncounted(None), uncounted(Some(0.3)), uncounted(Some(0.1))),
            (None, None, None)
        );
        let mut short = group();
        short.states[2].time_ns = 4_000_000_000;
        let found = WhyReport { busy_ratio: Some(0.1), ..report(vec![short.clone()]) };
        assert!(!found.is_silent());
        let text = found.uncounted().unwrap();
        assert!(
            text.starts_with("CPUs were idle for 90 % of the time, and only 10 % is in"),
            "{text}"
        );
        short.states[2].time_ns = 4_000_000;
        assert!(report(vec![short]).is_silent());
    }

    #[test]
    fn says_what_waits_and_what_another_state_would_change() {
        let findings = report(vec![group()]).findings();
        assert_eq!(findings.len(), 1);
        // By hand: 1840/s · 190 us = 35 %, and 180 us less of it 33 points. Each CPU spends 0.9 W more for
        // half of the time, and saves 1840 transitions a second of 900 mW · 600 us = 540 uJ, 0.99 W.
        let expected = "C6 on CPUs 4-7: 31 % too deep, 1,840 wake-ups/s × 190 us = 35 % of wall time \
                        waiting at most; C1E instead: −33 points, about −2.2 W (assumed)";
        assert_eq!(findings[0].text, expected);
    }

    #[test]
    fn leaves_alone_what_hardly_waits() {
        let mut group = group();
        (group.states[2].stay_count, group.states[2].too_deep_count) = (400, Some(380));
        let report = report(vec![group]);
        assert!(report.findings().is_empty());
        let text = report.to_text(&TextStyle::default());
        assert!(text.contains("Leave it alone: "), "{text}");
    }

    #[test]
    fn nobody_waits_longer_than_the_state_lasted() {
        let mut group = group();
        // Twelve thousand exits a second of 190 us would take 228 % of the time.
        (group.states[2].stay_count, group.states[2].too_deep_count) = (4 * 120_000, None);
        let report = report(vec![group]);
        let finding = &report.findings()[0];
        let expected = "C6 on CPUs 4-7: 12,000 wake-ups/s × 190 us, but no more than it lasted: 50 % of wall time \
                        waiting at most; C1E instead: −38 points, about ";
        assert!(finding.text.starts_with(expected), "{}", finding.text);
        for row in report.to_json()["rows"].as_array().unwrap() {
            assert!(row["waiting_ratio"].as_f64().unwrap() <= 1.0, "{row}");
        }
    }

    #[test]
    fn a_stay_longer_than_the_interval_is_no_more_than_all_of_it() {
        let mut group = group();
        (group.states[2].stay_count, group.states[2].time_ns) = (4 * 120_000, 4 * 60_000_000_000);
        let report = report(vec![group]);
        let finding = &report.findings()[0];
        assert_eq!(finding.waiting_ratio, Some(1.0));
        assert!(finding.instead.as_ref().unwrap().waiting_ratio >= -1.0);
    }

    #[test]
    fn a_disabled_state_is_no_alternative() {
        let mut group = group();
        group.states[1].is_disabled = true;
        let findings = report(vec![group]).findings();
        assert!(findings[0].text.ends_with("no shallower state is enabled, except to poll"));
    }

    #[test]
    fn says_that_the_firmware_refuses() {
        let mut group = group();
        group.states[2] = WhyState {
            stay_count: 0,
            time_ns: 0,
            too_deep_count: Some(0),
            rejected_count: Some(40_000),
            ..group.states[2].clone()
        };
        let findings = report(vec![group]).findings();
        assert!(findings[0].text.starts_with("C6 on CPUs 4-7: refused 1,000 times a second"));
    }

    #[test]
    fn says_what_a_limit_keeps_shallow() {
        let mut group = group();
        group.states.swap(1, 2);
        let used = &mut group.states[1];
        (used.exit_latency_ns, used.too_shallow_count) = (1_000, Some(70_000));
        group.latency_limit_ns = Some(50_000);
        let findings = report(vec![group]).findings();
        let text = &findings[0].text;
        assert!(text.contains("50 % of the time, and 95 % of its stays"), "{text}");
        assert!(text.ends_with("a latency limit of 50 us holds"), "{text}");
    }

    #[test]
    fn a_screen_has_forty_lines_of_a_hundred_columns() {
        let groups = (0..8).map(|_| group()).collect();
        let text = report(groups).to_text(&TextStyle::default());
        assert!(text.lines().count() <= 40, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
