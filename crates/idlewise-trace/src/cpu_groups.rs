//! Which CPUs form a core, a cluster or a package.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use idlewise_machine::Scope;
use serde::{Deserialize, Serialize};

/// The CPUs of each core, cluster and package. A level that is unknown has no groups.
///
/// ```
/// use idlewise_machine::Scope;
/// use idlewise_trace::CpuGroups;
///
/// let groups: CpuGroups = "package=0-3/4-7; core=0,1/2,3/4,5/6,7".parse()?;
/// assert_eq!(groups.of(Scope::Package), [vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
/// assert!(groups.of(Scope::Module).is_empty());
/// assert_eq!(groups.to_string(), "core=0-1/2-3/4-5/6-7;package=0-3/4-7");
/// # Ok::<(), idlewise_trace::CpuGroupsError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuGroups {
    /// The threads of each core.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub core: Vec<Vec<u16>>,
    /// The CPUs of each cluster or module, which Linux does not tell apart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster: Vec<Vec<u16>>,
    /// The CPUs of each package.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub package: Vec<Vec<u16>>,
}

/// Why a topology cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuGroupsError {
    /// Not in the form `LEVEL=CPUS/CPUS`.
    #[error("{text:?}: {reason}; write it as package=0-7/8-15;core=0,1/2,3")]
    Syntax {
        /// The part that is wrong.
        text: String,
        /// Why.
        reason: &'static str,
    },
    /// A CPU is named twice in a level.
    #[error("CPU {cpu} is named twice in level {scope}")]
    Twice {
        /// The CPU.
        cpu: u16,
        /// The level.
        scope: Scope,
    },
    /// A group is not inside of one group of a wider level.
    #[error("{inner} {cpus} lies in more than one {outer}")]
    Torn {
        /// The narrower level.
        inner: Scope,
        /// The group's CPUs.
        cpus: String,
        /// The wider level.
        outer: Scope,
    },
    /// The log has a CPU that is in no group.
    #[error("CPU {cpu} of the log is in no {scope}")]
    Ungrouped {
        /// The CPU.
        cpu: u16,
        /// The level.
        scope: Scope,
    },
    /// A group has a CPU that the log does not have.
    #[error("{scope} {cpus} includes CPU {cpu}, but the log has only CPUs {log_cpus}")]
    Unknown {
        /// The level.
        scope: Scope,
        /// The group's CPUs.
        cpus: String,
        /// The CPU.
        cpu: u16,
        /// The log's CPUs.
        log_cpus: String,
    },
    /// The log says something else.
    #[error("it has {given}, and the log has {recorded}")]
    Contradicts {
        /// The groups that were given.
        given: String,
        /// The recorded ones.
        recorded: String,
    },
}

/// The longest text that is accepted: far more than any machine needs.
const BYTE_COUNT_MAX: usize = 1 << 20;

impl std::str::FromStr for CpuGroups {
    type Err = CpuGroupsError;

    /// Reads levels separated by `;` or line ends; groups of a level are separated by `/`, and their CPUs written
    /// as in the kernel's lists. What follows a `#` is a comment.
    fn from_str(text: &str) -> Result<Self, CpuGroupsError> {
        let syntax = |text: &str, reason| {
            let text: String = text.chars().take(40).collect();
            CpuGroupsError::Syntax { text, reason }
        };
        if text.len() > BYTE_COUNT_MAX {
            return Err(syntax("", "longer than 1 MiB"));
        }
        let mut groups = CpuGroups::default();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        for part in lines.flat_map(|line| line.split(';')).map(str::trim) {
            if part.is_empty() {
                continue;
            }
            let (level, list) =
                part.split_once('=').ok_or_else(|| syntax(part, "no = after the level"))?;
            let level_name = level.trim();
            let level = match level_name {
                "core" => &mut groups.core,
                "cluster" | "module" => &mut groups.cluster,
                "package" => &mut groups.package,
                _ => return Err(syntax(part, "the level is core, module, cluster or package")),
            };
            if !level.is_empty() {
                return Err(syntax(part, "the level was given before"));
            }
            // Whoever names a CPU again is stopped at once, so that a short text cannot take long.
            let mut seen = BTreeSet::new();
            for group in list.split('/') {
                let cpus = cpus_of(group.trim(), &mut seen)
                    .ok_or_else(|| syntax(group, "not a list of CPUs such as 0-3,8"))?;
                let scope = match level_name {
                    "core" => Scope::Core,
                    "package" => Scope::Package,
                    _ => Scope::Cluster,
                };
                level.push(cpus.map_err(|cpu| CpuGroupsError::Twice { cpu, scope })?);
            }
            level.sort();
        }
        if groups == CpuGroups::default() {
            return Err(syntax("", "no groups"));
        }
        groups.check()?;
        Ok(groups)
    }
}

/// Parses `0-3,8`. Fails for a CPU that was seen before.
fn cpus_of(text: &str, seen: &mut BTreeSet<u16>) -> Option<Result<Vec<u16>, u16>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last {
            return None;
        }
        for cpu in first..=last {
            if !seen.insert(cpu) {
                return Some(Err(cpu));
            }
            cpus.push(cpu);
        }
    }
    cpus.sort_unstable();
    Some(Ok(cpus))
}

/// Writes CPUs, which must be in order, as a list like `0-3,8`, as the kernel does.
pub fn show_cpu_list(cpus: &[u16]) -> String {
    let mut text = String::new();
    for run in cpus.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        if !text.is_empty() {
            text.push(',');
        }
        let (first, last) = (run[0], run[run.len() - 1]);
        text += &if first == last { first.to_string() } else { format!("{first}-{last}") };
    }
    text
}

/// A list of so many CPUs, as `0,4,8,… (32 CPUs)` if it is long.
pub fn short_cpu_list(list: &str, cpu_count: usize) -> Cow<'_, str> {
    /// As long as it may be, and what is kept of a longer one.
    const BYTE_COUNTS: [usize; 2] = [24, 12];
    let [longest, kept] = BYTE_COUNTS;
    match list.len() > longest {
        true => {
            let end = list[..kept].rfind(',').unwrap_or(kept);
            format!("{},… ({cpu_count} CPUs)", &list[..end]).into()
        }
        false => list.into(),
    }
}

/// `CPU 2`, or `CPUs 0-3`; of a long list as short as [`short_cpu_list`].
pub fn cpus_in_words(cpus: &[u16]) -> String {
    cpu_list_in_words(&show_cpu_list(cpus), cpus.len())
}

/// The same of a list of so many CPUs.
pub fn cpu_list_in_words(list: &str, cpu_count: usize) -> String {
    let plural = if cpu_count == 1 { "" } else { "s" };
    format!("CPU{plural} {}", short_cpu_list(list, cpu_count))
}

impl fmt::Display for CpuGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = LEVELS.map(|scope| (scope, self.of(scope)));
        let known = levels.into_iter().filter(|(_, groups)| !groups.is_empty());
        for (index, (scope, groups)) in known.enumerate() {
            let lists: Vec<String> = groups.iter().map(|cpus| show_cpu_list(cpus)).collect();
            write!(f, "{}{scope}={}", if index > 0 { ";" } else { "" }, lists.join("/"))?;
        }
        Ok(())
    }
}

/// The levels that are told apart, the narrowest first.
const LEVELS: [Scope; 3] = [Scope::Core, Scope::Cluster, Scope::Package];

impl CpuGroups {
    /// Returns the groups that share the states of a scope, each with its CPUs in order.
    pub fn of(&self, scope: Scope) -> &[Vec<u16>] {
        match scope {
            Scope::Core => &self.core,
            Scope::Package => &self.package,
            _ => &self.cluster,
        }
    }

    /// Checks that levels are divisions of the CPUs, one inside of the other.
    ///
    /// # Errors
    /// Returns the first fault.
    pub fn check(&self) -> Result<(), CpuGroupsError> {
        let mut wider: Option<(Scope, BTreeMap<u16, usize>)> = None;
        for scope in LEVELS.into_iter().rev().filter(|scope| !self.of(*scope).is_empty()) {
            let mut group_of = BTreeMap::new();
            for (index, cpus) in self.of(scope).iter().enumerate() {
                if cpus.is_empty() {
                    let reason = "a group without CPUs";
                    return Err(CpuGroupsError::Syntax { text: String::new(), reason });
                }
                for &cpu in cpus {
                    if group_of.insert(cpu, index).is_some() {
                        return Err(CpuGroupsError::Twice { cpu, scope });
                    }
                }
                if let Some((outer, of_outer)) = &wider
                    && cpus.iter().any(|cpu| of_outer.get(cpu) != of_outer.get(&cpus[0]))
                {
                    let cpus = show_cpu_list(cpus);
                    return Err(CpuGroupsError::Torn { inner: scope, cpus, outer: *outer });
                }
            }
            wider = Some((scope, group_of));
        }
        Ok(())
    }

    /// Checks that the groups of these scopes have all CPUs whose idle time a log has, and no others than it names.
    ///
    /// # Errors
    /// Returns the first CPU that only one of both has.
    pub fn check_cpus(
        &self,
        scopes: &[Scope],
        seen_cpus: &[u16],
        log_cpus: &[u16],
    ) -> Result<(), CpuGroupsError> {
        for &scope in scopes {
            let grouped: BTreeSet<u16> = self.of(scope).iter().flatten().copied().collect();
            if let Some(&cpu) = seen_cpus.iter().find(|cpu| !grouped.contains(cpu)) {
                return Err(CpuGroupsError::Ungrouped { cpu, scope });
            }
            for cpus in self.of(scope) {
                if let Some(&cpu) = cpus.iter().find(|cpu| !log_cpus.contains(cpu)) {
                    let (cpus, log_cpus) = (show_cpu_list(cpus), show_cpu_list(log_cpus));
                    return Err(CpuGroupsError::Unknown { scope, cpus, cpu, log_cpus });
                }
            }
        }
        Ok(())
    }

    /// Checks that this says the same as recorded groups, as far as both know.
    ///
    /// # Errors
    /// Returns the first level that differs.
    pub fn check_against(&self, recorded: &CpuGroups) -> Result<(), CpuGroupsError> {
        let only = |groups: &CpuGroups, scope: Scope| {
            let level = groups.of(scope).to_vec();
            let mut one = CpuGroups::default();
            match scope {
                Scope::Core => one.core = level,
                Scope::Package => one.package = level,
                _ => one.cluster = level,
            }
            one.to_string()
        };
        for scope in LEVELS {
            let (given, known) = (self.of(scope), recorded.of(scope));
            if !given.is_empty() && !known.is_empty() && given != known {
                let (given, recorded) = (only(self, scope), only(recorded, scope));
                return Err(CpuGroupsError::Contradicts { given, recorded });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<CpuGroups>().unwrap_err().to_string()
    }

    #[test]
    fn writes_lists_of_cpus() {
        assert_eq!(show_cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!((show_cpu_list(&[7]), show_cpu_list(&[])), ("7".to_owned(), String::new()));
        assert_eq!(show_cpu_list(&[65535]), "65535");
    }

    #[test]
    fn a_long_list_of_cpus_is_shortened() {
        let every_fourth: Vec<u16> = (0..32).map(|at| 4 * at).collect();
        assert_eq!(cpus_in_words(&every_fourth), "CPUs 0,4,8,12,16,… (32 CPUs)");
        assert_eq!(cpus_in_words(&[2]), "CPU 2");
        assert_eq!(cpus_in_words(&[0, 1, 2, 3, 8, 10, 11]), "CPUs 0-3,8,10-11");
        let far: Vec<u16> = (0..9).map(|at| 60_000 + 2 * at).collect();
        assert_eq!(cpus_in_words(&far), "CPUs 60000,60002,… (9 CPUs)");
    }

    #[test]
    fn reads_levels_from_a_line_or_lines() {
        let one: CpuGroups = "package=0-3;core=0,2/1,3".parse().unwrap();
        let lines: CpuGroups =
            "# two cores\npackage = 3,0-2\n\ncore=1,3/2,0 # threads".parse().unwrap();
        assert_eq!(one, lines);
        assert_eq!(one.core, [vec![0, 2], vec![1, 3]]);
        let modules: CpuGroups = "module=0,1/2,3".parse().unwrap();
        assert_eq!(modules, "cluster=0-1/2-3".parse().unwrap());
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let form = "; write it as package=0-7/8-15;core=0,1/2,3";
        assert_eq!(error("0-3"), format!("\"0-3\": no = after the level{form}"));
        assert_eq!(
            error("socket=0"),
            format!("\"socket=0\": the level is core, module, cluster or package{form}")
        );
        assert_eq!(error("core=3-0"), format!("\"3-0\": not a list of CPUs such as 0-3,8{form}"));
        assert_eq!(error(" ;"), format!("\"\": no groups{form}"));
        assert_eq!(error("core=0,1/1,2"), "CPU 1 is named twice in level core");
        assert_eq!(error("core=0,1/2,3;package=0-2/3"), "core 2-3 lies in more than one package");
    }

    #[test]
    fn a_log_with_other_cpus_is_contradicted() {
        let groups: CpuGroups = "package=0-1/2-3".parse().unwrap();
        let check = |cpus: &[u16]| {
            groups.check_cpus(&[Scope::Package], cpus, cpus).map_err(|error| error.to_string())
        };
        assert_eq!(check(&[0, 1, 2, 3]), Ok(()));
        assert_eq!(check(&[0, 1, 2, 3, 4]), Err("CPU 4 of the log is in no package".to_owned()));
        assert_eq!(
            check(&[0, 1, 2]),
            Err("package 2-3 includes CPU 3, but the log has only CPUs 0-2".to_owned())
        );
        let recorded: CpuGroups = "package=0-3;core=0/1/2/3".parse().unwrap();
        assert_eq!(
            groups.check_against(&recorded).unwrap_err().to_string(),
            "it has package=0-1/2-3, and the log has package=0-3"
        );
        let cores: CpuGroups = "core=0/1/2/3".parse().unwrap();
        assert_eq!(cores.check_against(&recorded), Ok(()));
    }
}
