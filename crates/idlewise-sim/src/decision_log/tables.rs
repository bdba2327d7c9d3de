//! `tables.csv`: the state tables that logs refer to by name.

use std::io::BufRead;

use idlewise_core::{IdleState, StateTable};

use super::DecisionLogError;
use super::lines::Lines;

/// The state tables that logs refer to by name (`tables.csv`), in the file's order.
#[derive(Clone, Debug, Default)]
pub struct DecisionTables {
    tables: Vec<(String, StateTable)>,
}
impl DecisionTables {
    /// Reads `tables.csv`: one line for each state, in the order of their indices.
    ///
    /// # Errors
    /// Returns the first error and its location.
    pub fn read(file: impl BufRead) -> Result<Self, DecisionLogError> {
        let mut lines = Lines::new(file)?;
        let table_column = lines.column("table")?;
        let index_column = lines.column("index")?;
        let exit_latency_column = lines.column("exit_latency_ns")?;
        let residency_column = lines.column("target_residency_ns")?;
        let polling_column = lines.column("polling")?;
        let mut states: Vec<(String, Vec<IdleState>)> = Vec::new();
        while lines.advance()? {
            let name = lines.text(table_column);
            let known = states.iter().position(|(known, _)| *known == name);
            let position = known.unwrap_or_else(|| {
                states.push((name, Vec::new()));
                states.len() - 1
            });
            let (table, rows) = &mut states[position];
            let index: u64 = lines.number(index_column)?;
            if index != rows.len() as u64 {
                let (line, table, expected) = (lines.line(), table.clone(), rows.len());
                return Err(DecisionLogError::StateOrder { line, table, expected });
            }
            rows.push(IdleState {
                is_polling: lines.flag(polling_column)?,
                ..IdleState::new(
                    lines.number(exit_latency_column)?,
                    lines.number(residency_column)?,
                )
            });
        }
        let tables = states.into_iter().map(|(table, rows)| match StateTable::new(&rows) {
            Ok(states) => Ok((table, states)),
            Err(error) => Err(DecisionLogError::InvalidTable { table, error }),
        });
        Ok(DecisionTables { tables: tables.collect::<Result<_, _>>()? })
    }

    /// Returns the table with this name.
    pub fn get(&self, name: &str) -> Option<&StateTable> {
        self.tables.iter().find(|(table, _)| table == name).map(|(_, states)| states)
    }

    /// Returns all names, in the file's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(|(name, _)| name.as_str())
    }
}
