//! Other powers for a machine, to see what depends on them.

use crate::{CostModel, Machine};
use idlewise_core::words;

words! {
    name;
    /// A power for the powers of all states, relative to a running CPU.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Shape {
        /// Powers nearer to each other: the square roots of their shares of running power.
        Flat = "flat",
        /// As in the machine's file.
        Default = "default",
        /// Powers further from each other: their shares to the power of 1.5.
        Steep = "steep",
    }
}

impl Shape {
    /// What it does, in a line.
    pub fn meaning(self) -> &'static str {
        match self {
            Shape::Flat => {
                "Powers nearer to each other: the square roots of their shares of running power"
            }
            Shape::Default => "As in the machine's file",
            Shape::Steep => "Powers further from each other: their shares to the power of 1.5",
        }
    }

    /// Finds one by its name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name() == name)
    }

    /// The costs of a machine with these powers. `costs` are those of its file.
    pub fn costs(self, machine: &Machine, costs: &CostModel) -> CostModel {
        let exponent = match self {
            Shape::Flat => 0.5,
            Shape::Default => return costs.clone(),
            Shape::Steep => 1.5,
        };
        let running_mw = machine.running_power().mw;
        let power_mw = |mw: f64| running_mw * (mw / running_mw).powf(exponent);
        let powers_mw: Vec<f64> = machine.powers().iter().map(|power| power_mw(power.mw)).collect();
        CostModel::new(*costs.states(), &powers_mw, running_mw).with_exits(costs.exits())
    }
}
