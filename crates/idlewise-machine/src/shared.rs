//! The rules for the states that CPUs share.

use crate::{DomainState, Machine, nearest_name};

/// The most shared states of a machine. No known machine has more than three.
pub const SHARED_STATE_COUNT_MAX: usize = 6;

impl Machine {
    /// Returns the index and description of the first fault among the shared states.
    pub(crate) fn shared_fault(&self) -> Option<(usize, String)> {
        let mut shared_count = 0;
        let mut before: Option<&DomainState> = None;
        for (index, state) in self.domain_states.iter().enumerate() {
            if let Some(message) = self.domain_fault(state) {
                return Some((index, message));
            }
            if state.scope.is_none() {
                continue;
            }
            shared_count += 1;
            if shared_count > SHARED_STATE_COUNT_MAX {
                return Some((index, format!("more than {SHARED_STATE_COUNT_MAX} shared states")));
            }
            if let Some(message) = before.and_then(|before| order_fault(before, state)) {
                return Some((index, message));
            }
            before = Some(state);
        }
        None
    }

    /// What is wrong with a domain state itself.
    fn domain_fault(&self, state: &DomainState) -> Option<String> {
        let name = &state.name;
        let needs_scope = [
            (state.coordination.is_some(), "coordination"),
            (state.requires.is_some(), "requires"),
            (state.power_mw.is_some(), "power_mw"),
            (state.awake_power_mw.is_some(), "awake_power_mw"),
        ];
        if state.scope.is_none() {
            let (_, field) = needs_scope.into_iter().find(|(is_given, _)| *is_given)?;
            return Some(format!(
                "{name}: `{field}` without `scope`: say who shares the state, core, module, cluster \
                 or package"
            ));
        }
        if state.coordination.is_none() {
            return Some(format!(
                "{name}: `scope` without `coordination`: say who decides, platform or os-initiated"
            ));
        }
        let names = || self.states.iter().map(|state| state.name.as_str());
        match &state.requires {
            None => {
                return Some(format!(
                    "{name}: `scope` without `requires`: name the state that each CPU must be in"
                ));
            }
            Some(required) if names().filter(|name| name == required).count() != 1 => {
                let hint = match nearest_name(required, names()) {
                    Some(nearest) if nearest != required => format!("did you mean {nearest}?"),
                    _ => format!("name one of {}", names().collect::<Vec<_>>().join(", ")),
                };
                return Some(format!("{name} requires {required}, which is not one state: {hint}"));
            }
            Some(_) => {}
        }
        if let Some(microseconds) =
            [state.exit_latency_ns, state.target_residency_ns].into_iter().find(|ns| *ns > DAY_NS)
        {
            let us = microseconds / 1_000;
            return Some(format!("{name} declares {us} us, more than a day: check the unit"));
        }
        match (state.power_mw, state.awake_power_mw) {
            (None, None) if state.power_kind.is_some() || state.power_source.is_some() => {
                Some(format!("{name}: a source of powers without them: give both or neither"))
            }
            (Some(_), None) | (None, Some(_)) => Some(format!(
                "{name}: `power_mw` and `awake_power_mw` are only of use together: give both or \
                 neither"
            )),
            (Some(mw), Some(awake_mw)) if mw > awake_mw => Some(format!(
                "{name} draws {mw} mW, more than the {awake_mw} mW of being awake: check the powers"
            )),
            _ => None,
        }
    }
}

const DAY_NS: u64 = 86_400_000_000_000;

/// What is wrong with the order of two shared states.
fn order_fault(before: &DomainState, state: &DomainState) -> Option<String> {
    let (earlier, name) = (&before.name, &state.name);
    let (scope_before, scope) = (before.scope?, state.scope?);
    if scope < scope_before {
        return Some(format!(
            "{name} has scope {scope} after {earlier} with scope {scope_before}: order shared states \
             from the narrowest scope to the widest"
        ));
    }
    if state.target_residency_ns < before.target_residency_ns {
        return Some(format!(
            "{name} has target residency {} us, below the {} us of {earlier}: order shared states by \
             target residency",
            state.target_residency_ns as f64 / 1e3,
            before.target_residency_ns as f64 / 1e3,
        ));
    }
    if scope != scope_before {
        return None;
    }
    if state.coordination != before.coordination {
        return Some(format!("{name} and {earlier} have one scope and different `coordination`"));
    }
    if state.awake_power_mw != before.awake_power_mw {
        return Some(format!(
            "{name} and {earlier} have one scope and different `awake_power_mw`: it is the power \
             outside of both"
        ));
    }
    (state.power_mw > before.power_mw)
        .then(|| format!("{name} draws more power than {earlier}, which is shallower"))
}
