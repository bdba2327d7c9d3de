//! What is odd, assumed or unchecked about a machine, in sentences.

use crate::{Basis, Machine, MachineState, Power, PowerFigure};

impl Machine {
    /// What is odd, assumed or unchecked about this machine, one sentence each. Every result that
    /// rests on the machine shows them.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = self.table_doubts();
        doubts.extend(self.inference_doubts());
        doubts.extend(self.power_doubts());
        doubts
    }

    fn table_doubts(&self) -> Vec<String> {
        let Ok(table) = self.table() else {
            return vec!["no idle states: it cannot be replayed on".to_owned()];
        };
        table
            .doubts()
            .map(|doubt| format!("{}: {doubt}", self.state_label(doubt.index())))
            .collect()
    }

    fn inference_doubts(&self) -> impl Iterator<Item = String> + '_ {
        self.states.iter().filter(|state| !state.inferred.is_empty()).map(|state| {
            format!(
                "{}: inferred, not stated by the source: {}",
                state.name,
                state.inferred.join(", ")
            )
        })
    }

    fn power_doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let Power { mw: running_mw, basis: running_basis } = self.running_power();
        let names = |wanted: &dyn Fn(&MachineState) -> bool| -> Vec<String> {
            let states = self.states.iter().enumerate().filter(|(_, state)| wanted(state));
            states.map(|(index, _)| self.state_label(index)).collect()
        };
        let has_figure = |state: &MachineState, wanted: fn(&PowerFigure<'_>) -> bool| -> bool {
            state.power_figure().as_ref().is_some_and(wanted)
        };

        let assumed = names(&|state| state.power_mw.is_none() && !state.idle().is_polling);
        let running = match running_basis {
            Basis::Assumed => "an assumed running power",
            _ => "the running power",
        };
        if !assumed.is_empty() {
            doubts.push(format!(
                "power of {} assumed: default shape, ratios of {running} of {running_mw} mW",
                assumed.join(", ")
            ));
        } else if running_basis == Basis::Assumed && !self.states.is_empty() {
            doubts.push(format!("running power of {running_mw} mW assumed"));
        }

        let unsourced = names(&|state| has_figure(state, |f| f.basis() == Basis::Assumed));
        if !unsourced.is_empty() {
            doubts.push(format!(
                "power of {} counts as assumed: its file names no source",
                unsourced.join(", ")
            ));
        }
        let mut unchecked = names(&|state| has_figure(state, |f| !f.is_checked));
        if self.running_power_figure().is_some_and(|figure| !figure.is_checked) {
            unchecked.insert(0, "a running core".to_owned());
        }
        if !unchecked.is_empty() {
            doubts.push(format!(
                "power of {} quoted second-hand: read its source before relying on it",
                unchecked.join(", ")
            ));
        }
        let zero = names(&|state| state.power_mw == Some(0.0));
        if !zero.is_empty() {
            doubts.push(format!(
                "power of {} is zero by construction, not by measurement",
                zero.join(", ")
            ));
        }
        for (states, powers) in self.states.windows(2).zip(self.powers().windows(2)) {
            if powers[1].mw > powers[0].mw {
                doubts.push(format!("{}: more power than {}", states[1].name, states[0].name));
            }
        }
        doubts
    }
}
