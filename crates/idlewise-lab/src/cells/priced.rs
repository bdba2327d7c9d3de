//! Cells in the order of a table, and what they cost at each power shape and price.

use idlewise_report::arena::{ArenaCell, Spent};
use idlewise_report::cell::{CellResult, CollectedCell};
use idlewise_sim::CostModel;

use super::{Cell, CellSetting, Shape, own_index};
use crate::roster::Choice;
use crate::target::ReplayTarget;

/// A cell's place in the table.
pub struct Place<'a> {
    /// The governor; `None` for the oracle.
    pub choice: Option<&'a Choice>,
    /// What is computed.
    pub cell: Cell<'a>,
}

/// The cells of a log: for each setting and machine those of the governors and those of the oracle.
pub fn places<'a>(
    targets: &'a [ReplayTarget],
    machine_hashes: &'a [String],
    choices: &'a [Choice],
    settings: &[CellSetting],
    shapes: &[Shape],
    lambdas: &[f64],
) -> Vec<Place<'a>> {
    let mut places = Vec::new();
    for &setting in settings {
        for (target, hash) in targets.iter().zip(machine_hashes) {
            for choice in choices {
                let cells = Cell::of_governor(target, hash, choice, shapes, lambdas, setting);
                places.extend(cells.into_iter().map(|cell| Place { choice: Some(choice), cell }));
            }
            let cells = Cell::of_oracle(target, hash, shapes, lambdas, setting);
            places.extend(cells.into_iter().map(|cell| Place { choice: None, cell }));
        }
    }
    places
}

/// The cells of a log on one machine in one setting.
pub struct Group<'p, 'a> {
    own: Vec<(&'a Choice, Vec<Option<CellResult>>)>,
    /// For each shape, one for each price.
    oracles: Vec<Option<CellResult>>,
    first: &'p Place<'a>,
}

/// A cell at one price.
pub struct Priced {
    log: String,
    governor: String,
    shape: &'static str,
    lambda: f64,
    cost_uj: f64,
    oracle_cost_uj: f64,
    spent: Spent,
    oracle_spent: Spent,
    cell: CellResult,
}

/// Puts the cells of each setting and machine together. They follow each other, the oracle's last.
pub fn groups<'p, 'a>(cells: Vec<(&'p Place<'a>, Option<CellResult>)>) -> Vec<Group<'p, 'a>> {
    let mut groups: Vec<Group<'p, 'a>> = Vec::new();
    let mut is_new = true;
    for (place, cell) in cells {
        if is_new && place.choice.is_some() {
            groups.push(Group { own: Vec::new(), oracles: Vec::new(), first: place });
        }
        is_new = place.choice.is_none();
        let Some(group) = groups.last_mut() else { continue };
        match place.choice {
            None => group.oracles.push(cell),
            Some(choice) => match group.own.last_mut() {
                Some((last, cells)) if std::ptr::eq(*last, choice) => cells.push(cell),
                _ => group.own.push((choice, vec![cell])),
            },
        }
    }
    groups
}

impl Group<'_, '_> {
    /// Adds a row for each governor, shape and price.
    pub fn price(&self, shapes: &[Shape], lambdas: &[f64], log: &str, rows: &mut Vec<Priced>) {
        let target = self.first.cell.target;
        let models: Vec<(Shape, CostModel)> =
            shapes.iter().map(|&shape| (shape, shape.costs(target))).collect();
        for (choice, own) in &self.own {
            let mut oracles = self.oracles.iter();
            for (shape_index, (shape, model)) in models.iter().enumerate() {
                for (index, (&lambda, oracle)) in lambdas.iter().zip(&mut oracles).enumerate() {
                    let own = &own[own_index(own.len(), shape_index, index, lambdas.len())];
                    let (Some(own), Some(oracle)) = (own, oracle) else { continue };
                    let lambda_mw = lambda * model.full_price_mw();
                    rows.push(Priced {
                        log: log.to_owned(),
                        governor: choice.name(),
                        shape: shape.name(),
                        lambda,
                        cost_uj: own.cost_uj(model, lambda_mw),
                        oracle_cost_uj: oracle.cost_uj(model, lambda_mw),
                        spent: own.spent(model),
                        oracle_spent: oracle.spent(model),
                        cell: own.clone(),
                    });
                }
            }
        }
    }
}

impl Priced {
    /// As a row of a sweep.
    pub fn collected(&self) -> CollectedCell<'_> {
        CollectedCell {
            cell: &self.cell,
            log: &self.log,
            governor: &self.governor,
            shape: self.shape,
            lambda: self.lambda,
            cost_uj: self.cost_uj,
            oracle_cost_uj: self.oracle_cost_uj,
        }
    }

    /// As a row of the arena.
    pub fn arena(&self) -> ArenaCell {
        ArenaCell {
            log: self.log.clone(),
            machine: self.cell.inputs.machine.clone(),
            hz: self.cell.hz,
            shape: self.shape,
            lambda: self.lambda,
            governor: self.governor.clone(),
            cost_uj: self.cost_uj,
            oracle_cost_uj: self.oracle_cost_uj,
            spent: self.spent,
            oracle_spent: self.oracle_spent,
        }
    }
}
