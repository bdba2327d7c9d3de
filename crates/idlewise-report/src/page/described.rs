//! What a page says of its machines, logs and notes, made from what the replay was given.

use idlewise_core::DisabledMask;
use idlewise_sim::contest::Price;
use idlewise_sim::{CostModel, Machine, MachineState, Power};
use idlewise_trace::log::LogMetadata;
use idlewise_trace::{Doubt, Rank};

use super::{
    BasisKind, BasisNote, DoubtFacts, Knows, MachineFacts, NoteFacts, PriceFacts, StateFacts,
};
use crate::Notes;

impl MachineFacts {
    /// Describes a machine with these states disabled.
    pub fn of(
        machine: &Machine,
        costs: &CostModel,
        disabled: DisabledMask,
        tick_work_ns: u64,
        latency_limit_ns: Option<u64>,
    ) -> Self {
        let state = |(index, (state, power)): (usize, (&MachineState, Power))| {
            let is_inferred = state.inferred.iter().any(|field| field.starts_with("exit_latency"));
            StateFacts {
                name: state.name.clone(),
                exit_latency_ns: costs.exits().mean_ns(index),
                target_residency_ns: state.target_residency_ns,
                power_mw: costs.power_mw(index),
                transition_uj: costs.transition_uj(index),
                is_polling: state.idle().is_polling,
                is_disabled: disabled.contains(index),
                power_basis: power.basis.into(),
                // A driver's table has worst cases; nobody measured them.
                latency_basis: match state.exit_figure() {
                    Some(figure) => figure.basis().into(),
                    None if is_inferred => BasisKind::Assumed,
                    None => BasisKind::Documented,
                },
            }
        };
        let source = match &machine.source_ref {
            Some(place) => format!("{}: {place}", machine.source),
            None => machine.source.clone(),
        };
        let doubts = machine.doubts().into_iter().map(|doubt| DoubtFacts {
            is_minor: doubt.rank() == Rank::Minor,
            text: doubt.to_string(),
            about: machine.id.clone(),
        });
        MachineFacts {
            id: machine.id.clone(),
            title: machine.title.clone(),
            source,
            full_price_mw: costs.full_price_mw(),
            running_mw: costs.running_mw,
            tick_work_ns,
            latency_limit_ns,
            states: machine.states.iter().zip(machine.powers()).enumerate().map(state).collect(),
            doubts: doubts.collect(),
        }
    }
}

impl PriceFacts {
    /// Describes a price of delay.
    pub fn of(price: Price) -> Self {
        let (name, share, price_mw) = match price {
            Price::QUARTER => ("λ = ¼".to_owned(), Some(0.25), None),
            Price::Times(times) => (format!("λ = {times}"), Some(times), None),
            Price::Milliwatts(mw) => (format!("λ = {mw} mW"), None, Some(mw)),
        };
        PriceFacts { name, share, price_mw }
    }
}

impl Knows {
    /// Reads from a log's metadata what its recording lacks.
    pub fn of(metadata: &LogMetadata) -> Self {
        let knows = |column| !metadata.is_unknown(column);
        Knows {
            timers: knows("sleep_length_ns"),
            wakes: knows("wake_reason"),
            states: knows("recorded_state"),
            ticks: knows("tick_stopped") && knows("ran_task"),
        }
    }
}

/// Returns the doubts of a log.
pub fn log_doubts(name: &str, metadata: &LogMetadata) -> Vec<DoubtFacts> {
    let fact = |doubt: &Doubt| DoubtFacts {
        text: doubt.to_string(),
        is_minor: doubt.rank() == Rank::Minor,
        about: name.to_owned(),
    };
    metadata.doubts.iter().map(fact).collect()
}

impl From<&Notes> for NoteFacts {
    fn from(notes: &Notes) -> Self {
        let basis = notes
            .bases()
            .map(|(basis, what)| BasisNote { basis: basis.into(), text: what.to_owned() });
        let doubts = notes.ranked_doubts().map(|(doubt, rank, count)| DoubtFacts {
            text: if count > 1 { format!("{doubt} ({count} times)") } else { doubt.to_owned() },
            is_minor: rank == Rank::Minor,
            about: String::new(),
        });
        NoteFacts { basis: basis.collect(), doubts: doubts.collect() }
    }
}
