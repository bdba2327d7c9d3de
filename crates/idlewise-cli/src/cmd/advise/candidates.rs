//! What `idlewise advise` tries: from a latency limit, which is lifted as easily as it is set, to a parameter
//! of the kernel.

use std::time::Duration;

use idlewise_core::{DisabledMask, NO_LATENCY_LIMIT_NS};
use idlewise_host::settings::{CpuSet, Setting};
use idlewise_report::advise::Step;
use idlewise_trace::Driver;
use idlewise_trace::log::LogMetadata;

use crate::error::Result;
use crate::governors::Choice;
use crate::replay_arguments::ReplayTarget;

/// Governors that a kernel may have, and that suit a tickless one.
const GOVERNORS: [&str; 2] = ["menu", "teo"];

/// The settings under which a recording is replayed.
pub(super) struct Variant {
    /// What would be set.
    pub change: Change,
    pub step: Step,
    pub choice: Choice,
    pub disabled: DisabledMask,
    pub latency_limit_ns: i64,
    /// Whether it changes all CPUs, even if only some were asked for.
    pub is_everywhere: bool,
}

/// What makes a variant of the machine.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Nothing: the settings as they are.
    Nothing,
    /// A setting that `idlewise set` knows, and the state's index if it is about one.
    Setting(Setting, Option<usize>),
    /// A parameter on the kernel's command line.
    Boot(String),
}

impl Change {
    /// Returns its text form.
    pub fn text(&self) -> String {
        match self {
            Change::Nothing => "as it is".to_owned(),
            Change::Setting(setting, _) => setting.to_string(),
            Change::Boot(parameter) => parameter.clone(),
        }
    }
}

/// The machine as it was recorded, and what to try on it.
pub(super) struct Candidates<'a> {
    pub target: &'a ReplayTarget,
    pub metadata: &'a LogMetadata,
    /// The CPUs that were asked for; `None`: all.
    pub asked: Option<&'a CpuSet>,
    /// All CPUs of the recording.
    pub all: CpuSet,
}

impl Candidates<'_> {
    /// Returns the settings as they are.
    pub fn as_it_is(&self) -> Result<Variant> {
        let kernel = self.metadata.kernel.as_deref();
        let name = self.metadata.governor.as_deref().unwrap_or(GOVERNORS[0]);
        Ok(Variant {
            change: Change::Nothing,
            step: Step::LatencyLimit,
            choice: Choice::of_kernel(name, kernel)?,
            disabled: self.target.disabled,
            latency_limit_ns: NO_LATENCY_LIMIT_NS,
            is_everywhere: false,
        })
    }

    /// Returns what to try, the least drastic first.
    pub fn all(&self) -> Result<Vec<Variant>> {
        let mut variants = self.latency_limits()?;
        variants.extend(self.governors()?);
        variants.extend(self.states_off()?);
        if self.asked.is_none() {
            variants.extend(self.boot_parameters()?);
        }
        Ok(variants)
    }

    /// The enabled states that are none of polling, shallowest first.
    fn enabled(&self) -> Vec<usize> {
        let states = &self.target.machine.states;
        let is_on = |index: &usize| {
            !self.target.disabled.contains(*index) && !states[*index].idle().is_polling
        };
        (0..states.len()).filter(is_on).collect()
    }

    fn latency_limits(&self) -> Result<Vec<Variant>> {
        let mut variants = Vec::new();
        for pair in self.enabled().windows(2) {
            let latency_ns = |index: usize| self.target.machine.states[index].exit_latency_ns;
            // Limits are whole microseconds. 0 means something else to the kernel.
            let limit_us = latency_ns(pair[0]).div_ceil(1_000).max(1);
            if limit_us * 1_000 >= latency_ns(pair[1]) {
                continue;
            }
            let cpus = self.asked.cloned().unwrap_or_else(|| self.all.clone());
            let limit = Some(Duration::from_micros(limit_us));
            variants.push(Variant {
                change: Change::Setting(Setting::LatencyLimit { cpus: Some(cpus), limit }, None),
                latency_limit_ns: i64::try_from(limit_us * 1_000).unwrap_or(NO_LATENCY_LIMIT_NS),
                ..self.as_it_is()?
            });
        }
        Ok(variants)
    }

    fn governors(&self) -> Result<Vec<Variant>> {
        let kernel = self.metadata.kernel.as_deref();
        let now = self.as_it_is()?.choice.id();
        let mut variants = Vec::new();
        for name in GOVERNORS {
            let choice = Choice::of_kernel(name, kernel)?;
            if choice.id() == now || self.metadata.governor.as_deref() == Some(name) {
                continue;
            }
            variants.push(Variant {
                change: Change::Setting(Setting::Governor(name.to_owned()), None),
                step: Step::Governor,
                choice,
                is_everywhere: true,
                ..self.as_it_is()?
            });
        }
        Ok(variants)
    }

    fn states_off(&self) -> Result<Vec<Variant>> {
        let states = &self.target.machine.states;
        let enabled = self.enabled();
        if enabled.len() < 2 {
            return Ok(Vec::new());
        }
        let mut variants = Vec::new();
        for index in enabled {
            let state = &states[index].name;
            // A name that two states have does not say which.
            if states.iter().filter(|other| other.name == *state).count() > 1 {
                continue;
            }
            let setting = Setting::StateDisable {
                cpus: self.asked.cloned(),
                state: state.clone(),
                disabled: true,
            };
            variants.push(Variant {
                change: Change::Setting(setting, Some(index)),
                step: Step::StateOff,
                disabled: self.target.disabled.with(index),
                ..self.as_it_is()?
            });
        }
        Ok(variants)
    }

    /// Both drivers for x86 can end their table early. Their other parameters have no such clear effect.
    fn boot_parameters(&self) -> Result<Vec<Variant>> {
        let module = match &self.metadata.driver {
            Some(Driver::Named(name)) if name == "intel_idle" => "intel_idle",
            Some(Driver::Named(name)) if name == "acpi_idle" => "processor",
            _ => return Ok(Vec::new()),
        };
        let state_count = self.target.machine.states.len();
        let enabled = self.enabled();
        let mut variants = Vec::new();
        for &deepest in enabled.iter().rev().skip(1) {
            let deeper = (deepest + 1..state_count)
                .fold(self.target.disabled, |disabled, index| disabled.with(index));
            variants.push(Variant {
                // State 0 polls and does not count.
                change: Change::Boot(format!("{module}.max_cstate={deepest}")),
                step: Step::Boot,
                disabled: deeper,
                is_everywhere: true,
                ..self.as_it_is()?
            });
        }
        Ok(variants)
    }
}
