//! `--topology`: which CPUs share idle states.

use std::path::Path;

use idlewise_lab::topology::Topology;
use idlewise_trace::CpuGroups;

use crate::error::{Failure, Result};
use crate::input::read_text;
use crate::role::{BundleRole, Roles};
use crate::screen;

#[derive(clap::Args, Clone, Default)]
pub struct Joining {
    /// Which CPUs form a core, module, cluster or package, for machines whose CPUs share idle states.
    ///
    /// Separate groups with '/' and levels with ';', as in 'package=0-7/8-15;core=0,1/2,3'. In a file,
    /// write one level per line. Recordings made by `idlewise record` contain it.
    #[arg(long, hide_short_help = true, value_name = "GROUPS|FILE")]
    topology: Option<String>,
}

impl Joining {
    /// Its role in a bundle.
    pub const ROLES: Roles = &[(BundleRole::InTable, &["topology"])];

    /// Whether a topology was given.
    pub fn is_given(&self) -> bool {
        self.topology.is_some()
    }

    /// Reads the topology.
    pub fn topology(&self) -> Result<Topology> {
        let Some(text) = &self.topology else { return Ok(Topology::NONE) };
        let (name, text) = match text.contains('=') {
            true => ("--topology".to_owned(), text.clone()),
            false => {
                let path = Path::new(text);
                (format!("--topology {}", screen::name(path)), read_text(path)?)
            }
        };
        let groups: Result<CpuGroups, _> = text.parse();
        let groups = groups.map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
        Ok(Topology::given(groups))
    }
}
