//! Which CPUs share idle states, and whether a log and a machine can be replayed with them.

use idlewise_sim::replay::ReplayedGroups;
use idlewise_sim::{Scope, SharedStates};
use idlewise_trace::CpuGroups;

use crate::error::{Failure, Result};
use crate::input::NamedLog;

/// The topology that was given, checked in itself.
pub struct Topology(Option<CpuGroups>);

/// Whether CPUs of a log share a machine's states.
pub enum Joined {
    /// The machine has no shared states.
    Never,
    /// It has, but they are left out. The reason is a doubt.
    LeftOut(String),
    /// They are replayed. These CPUs were not observed, and count as awake.
    Yes(ReplayedGroups, Vec<u16>),
}

impl Joined {
    /// The groups, if CPUs are replayed together.
    pub fn groups(self) -> Option<ReplayedGroups> {
        match self {
            Joined::Yes(groups, _) => Some(groups),
            Joined::Never | Joined::LeftOut(_) => None,
        }
    }
}

impl Topology {
    /// None was given.
    pub const NONE: Topology = Topology(None);

    /// The one that was given.
    pub fn given(groups: CpuGroups) -> Self {
        Topology(Some(groups))
    }

    /// Finds out how a log is replayed on a machine with these shared states.
    ///
    /// # Errors
    /// If the topology contradicts the log.
    pub fn join(&self, named: &NamedLog, id: &str, shared: &SharedStates) -> Result<Joined> {
        if shared.is_empty() {
            return Ok(Joined::Never);
        }
        let log = &named.log;
        // A log of somebody else's making may say anything.
        let recorded = log.metadata.topology.as_ref().filter(|groups| groups.check().is_ok());
        let scopes = shared.scopes();
        let missing =
            |groups: &CpuGroups| scopes.iter().copied().find(|&scope| groups.of(scope).is_empty());
        let (seen, all) = log_cpus(named);
        let unseen = |groups: &CpuGroups| -> Vec<u16> {
            let named = scopes.iter().flat_map(|scope| groups.of(*scope)).flatten();
            let mut unseen: Vec<u16> = named.filter(|cpu| !seen.contains(cpu)).copied().collect();
            unseen.sort_unstable();
            unseen.dedup();
            unseen
        };
        if let Some(given) = &self.0 {
            let fail = |error: &dyn std::fmt::Display| {
                Failure::new(format_args!("--topology and {}: {error}", named.name))
            };
            if let Some(scope) = missing(given) {
                return Err(Failure::new(format_args!(
                    "--topology: the CPUs of {id} share states of a {scope}; add {scope}= to {given}"
                )));
            }
            if let Some(recorded) = recorded {
                given.check_against(recorded).map_err(|error| fail(&error))?;
            }
            given.check_cpus(&scopes, &seen, &all).map_err(|error| fail(&error))?;
            return Ok(Joined::Yes(ReplayedGroups::new(shared, given), unseen(given)));
        }
        let name = &named.name;
        let left_out = format!("{}, which CPUs share, left out", shared.names().join(", "));
        let Some(recorded) = recorded else {
            return Ok(Joined::LeftOut(format!(
                "{name} on {id}: {left_out}: the log does not say which CPUs share them; pass --topology"
            )));
        };
        if let Some(scope) = missing(recorded) {
            return Ok(Joined::LeftOut(format!(
                "{name} on {id}: {left_out}: the log does not say which CPUs form a {scope}; pass --topology"
            )));
        }
        // CPUs that were not recorded count as awake, so that nothing is promised.
        let has_group =
            |cpu: &u16, scope: &Scope| recorded.of(*scope).iter().any(|group| group.contains(cpu));
        let lost = seen.iter().find(|cpu| scopes.iter().any(|scope| !has_group(cpu, scope)));
        Ok(match lost {
            Some(cpu) => Joined::LeftOut(format!(
                "{name} on {id}: {left_out}: its topology does not name CPU {cpu}; pass --topology"
            )),
            None => Joined::Yes(ReplayedGroups::new(shared, recorded), unseen(recorded)),
        })
    }
}

/// The CPUs whose idle time the log has, and all that it names.
fn log_cpus(named: &NamedLog) -> (Vec<u16>, Vec<u16>) {
    let noted = &named.log.metadata.cpus;
    let of_gaps = named.log.groups_by_cpu().into_iter().flatten().map(|(cpu, _)| cpu);
    let observed = noted.iter().filter(|cpu| cpu.observed).map(|cpu| cpu.cpu);
    let mut seen: Vec<u16> = observed.chain(of_gaps).collect();
    seen.sort_unstable();
    seen.dedup();
    let mut all: Vec<u16> = seen.iter().copied().chain(noted.iter().map(|cpu| cpu.cpu)).collect();
    all.sort_unstable();
    all.dedup();
    (seen, all)
}
