//! Replays governors from C files like built-in ones: a kernel's own `menu.c`, unmodified or patched, a folder
//! of several files, or a file that was never in a kernel.
//!
//! ```text
//! menu.c ─ patch ─► compiler ─► cache ─► confined process ─► one private copy per replayed CPU
//!                     ▲                     (worker)            │ select, reflect
//!              include/, our headers                            ▼
//!                                                          idlewise-sim's lane
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `source.rs` | [`GovernorSource`]: the user's request: file or folder, patch and kernel |
//! | `kernel.rs` | [`KERNELS`]: the kernels for which there are headers |
//! | `file.rs` | a C file, and the reading of files |
//! | `patch.rs` | applies a patch, also one that a mail has damaged |
//! | `folder.rs` | a governor of several files |
//! | `compile.rs` | the system's C compiler |
//! | `work_folder.rs` | a private folder for the compiler, which is removed even after signals |
//! | `cache.rs` | compiled libraries, kept where nobody else can write |
//! | `program.rs` | [`find_program`]: where a program is |
//! | `process_group.rs` | ends a compiler or worker with what it started |
//! | `confine/` | limits for the compiler, and the seccomp filter of a worker |
//! | `diagnose.rs` | shortens a failed compiler's messages |
//! | `error.rs` | what can be wrong with a governor |
//! | `plugin.rs` | [`Plugin`]: a governor from a file, as replay uses it |
//! | `instance.rs` | [`Instance`]: a loaded governor, behind `idlewise_core::Governor` |
//! | `failure.rs` | [`Failure`]: what a governor did wrong, and where |
//! | `limits.rs` | how much time a worker may use |
//! | `syscalls.rs` | names of system calls |
//! | `page.rs` | the memory that a worker shares with idlewise |
//! | `worker/` | the process that replays foreign code, so that a crash ends only that process |
//! | `include/` | `idlewise_governor.h`, the stable interface, and the kernel's on top of it |
//!
//! # State
//!
//! Each replayed CPU loads its own copy of the library. So every variable of the file exists once per CPU.
//! Per-CPU data needs no indirection, several versions of a file can be replayed side by side, and CPUs on
//! different threads share nothing. State that a kernel governor deliberately shares between CPUs is per
//! CPU here, because a replay must not depend on which thread is faster.
//!
//! # Isolation
//!
//! Foreign code runs in a child process that replays whole lanes. It receives gaps and returns a tally, so
//! no single decision crosses a process boundary. The child confines itself before it loads the code
//! (`confine/governor.rs`). idlewise watches the child, and checks everything it sends
//! (`worker/process.rs`, `worker/check.rs`). A governor can only lie about itself. `docs/plugins.md` says
//! what users can rely on.
//!
//! This crate does not know governors by name, and does not depend on the GPL-2.0 ports.

mod cache;
mod compile;
mod confine;
mod diagnose;
mod error;
mod failure;
mod file;
mod folder;
mod instance;
mod kernel;
mod limits;
mod page;
mod patch;
mod plugin;
mod process_group;
mod program;
mod source;
mod syscalls;
mod work_folder;
mod worker;

pub use cache::cache_folder;
pub use compile::{Compiler, Confinement};
pub use error::PluginError;
pub use failure::{Failure, FailureCause, Place};
pub use instance::{Instance, Library};
pub use kernel::{KERNELS, Kernel};
pub use plugin::{CAN_LOAD, Plugin, PluginLane, RemoteGovernor};
pub use program::find_program;
pub use source::GovernorSource;
pub use work_folder::{Purpose, WorkFolder, end_without_compilers};
pub use worker::{WorkerCommand, serve};

use include_dir::{Dir, include_dir};

/// The headers for compiling governors.
static INCLUDE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/include");

/// Returns every name that the headers define for kernel governors, by topic, in the header's order.
pub fn interfaces() -> Vec<(&'static str, Vec<&'static str>)> {
    let file = INCLUDE.get_file("kernel/idlewise/kernel.h");
    let text = file.and_then(|file| file.contents_utf8()).unwrap_or_default();
    let mut topics: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut previous = "";
    for line in text.lines() {
        // A comment after an empty line is a topic.
        if let Some(topic) = line.strip_prefix("/* ").filter(|_| previous.is_empty()) {
            topics.push((topic.split([':', '.', '*']).next().unwrap_or(topic).trim(), Vec::new()));
        }
        previous = line;
        let Some(name) = defined_name(line) else { continue };
        let is_ours = name.contains("idlewise") || name.contains("IDLEWISE");
        let is_hidden = name.starts_with('_') && !name.starts_with("__");
        if let Some((_, names)) = topics.last_mut()
            && !is_ours
            && !is_hidden
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    topics.retain(|(_, names)| !names.is_empty());
    topics
}

/// Returns what a line of the header defines: a macro, a type, a function or a variable.
fn defined_name(line: &'static str) -> Option<&'static str> {
    if let Some(rest) = line.strip_prefix("#define ") {
        return rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
    }
    if let Some(rest) = line.strip_prefix("struct ") {
        return rest.strip_suffix(" {");
    }
    if let Some(rest) = line.strip_prefix("typedef ") {
        return rest.strip_suffix(';')?.rsplit(' ').next();
    }
    if let Some(rest) = line.strip_prefix("static const ") {
        return rest.split(' ').nth(1);
    }
    let line = line
        .strip_prefix("__attribute__((visibility(\"hidden\"))) ")
        .or_else(|| line.strip_prefix("static inline "))?;
    // The star of a function that returns a pointer is at its name.
    line.split('(').next()?.rsplit(' ').next().map(|name| name.trim_start_matches('*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_what_governors_use() {
        let topics = interfaces();
        let names: Vec<&str> = topics.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for name in [
            "u64",
            "min",
            "div_u64",
            "TICK_NSEC",
            "local_clock",
            "tick_nohz_get_sleep_length",
            "tick_nohz_enabled",
            "DEFINE_PER_CPU",
            "cpuidle_governor_latency_req",
            "cpuidle_register_governor",
            "cpuidle_device",
            "postcore_initcall",
            "module_param",
            "kvm_para_available",
            "kernel_fpu_begin",
            "cpuidle_get_cpu_driver",
            "DEFINE_STATIC_KEY_FALSE",
        ] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        assert!(
            names.iter().all(|name| !name.is_empty() && !name.contains([' ', '*'])),
            "{names:?}"
        );
    }
}
