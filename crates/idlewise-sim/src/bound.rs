//! Reference governors: simple rules with names that users can type.

use idlewise_core::{Fixed, Governor, GovernorVisitor, TimerOnly};

use crate::{Machine, MachineError};

/// The names of the bounds, and what each does.
pub const BOUNDS: [(&str, &str); 4] = [
    ("deepest", "the deepest state that is enabled and allowed"),
    ("shallowest", "the shallowest state that is enabled and allowed"),
    ("fixed=STATE", "one state, by name or index; if it is not allowed, the next shallower one"),
    ("timer-only", "the deepest state that the next timer leaves room for"),
];

/// A reference governor, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "`BOUNDS` says what each does")]
pub enum Bound {
    Deepest,
    Shallowest,
    TimerOnly,
    /// A fixed state, by name or index, on any machine.
    Fixed(String),
}

impl Bound {
    /// Parses the name of a bound; `None` if it is not one.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "deepest" => Some(Bound::Deepest),
            "shallowest" => Some(Bound::Shallowest),
            "timer-only" => Some(Bound::TimerOnly),
            _ => Some(Bound::Fixed(name.strip_prefix("fixed=")?.to_owned())),
        }
    }

    /// Returns the bound's name.
    pub fn name(&self) -> String {
        match self {
            Bound::Deepest => "deepest".to_owned(),
            Bound::Shallowest => "shallowest".to_owned(),
            Bound::TimerOnly => "timer-only".to_owned(),
            Bound::Fixed(state) => format!("fixed={state}"),
        }
    }

    /// Returns what it does, as in [`BOUNDS`].
    pub fn meaning(&self) -> &'static str {
        let is_fixed = matches!(self, Bound::Fixed(_));
        let is_mine = |name: &str| name == self.name() || is_fixed && name.starts_with("fixed=");
        BOUNDS.iter().find(|(name, _)| is_mine(name)).map_or("", |(_, meaning)| meaning)
    }

    /// Resolves the rule for a machine.
    ///
    /// # Errors
    /// Fails if the machine has no such state.
    pub fn on(&self, machine: &Machine) -> Result<Rule, MachineError> {
        Ok(match self {
            Bound::Deepest => Rule::Fixed(Fixed::Deepest),
            Bound::Shallowest => Rule::Fixed(Fixed::Shallowest),
            Bound::TimerOnly => Rule::TimerOnly,
            Bound::Fixed(state) => Rule::Fixed(Fixed::State(machine.state_index(state)?)),
        })
    }
}

/// A bound resolved for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in `Bound`")]
pub enum Rule {
    Fixed(Fixed),
    TimerOnly,
}

impl Rule {
    /// Calls the visitor with the governor of one CPU.
    pub fn visit<V: GovernorVisitor>(self, tick_period_ns: u32, visitor: V) -> V::Output {
        match self {
            Rule::Fixed(governor) => visitor.visit(governor),
            Rule::TimerOnly => visitor.visit(TimerOnly::new(tick_period_ns.into())),
        }
    }
}

/// A visitor that boxes the governor.
pub struct IntoBox;

impl GovernorVisitor for IntoBox {
    type Output = Box<dyn Governor>;

    fn visit<G: Governor + Clone + 'static>(self, governor: G) -> Box<dyn Governor> {
        Box::new(governor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_every_name_in_the_list() {
        let machine = idlewise_machine::bundled("spr").unwrap();
        for (name, _) in BOUNDS {
            let name = name.replace("STATE", "C6");
            let bound = Bound::parse(&name).expect(&name);
            assert_eq!(bound.name(), name);
            assert!(!bound.meaning().is_empty());
            bound.on(&machine).unwrap();
        }
        let message = |name| Bound::parse(name).unwrap().on(&machine).unwrap_err().to_string();
        let names = "it has POLL, C1, C1E, C6";
        assert_eq!(message("fixed=C9"), format!("machine spr has no state C9: {names}"));
        assert_eq!(message("fixed=4"), format!("machine spr has no state 4: {names}"));
        assert_eq!(Bound::parse("fixed"), None);
    }
}
