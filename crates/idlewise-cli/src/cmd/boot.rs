//! `idlewise lab boot`: the idle routine that an x86 machine gets at boot, and why.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_host::{BootMachine, boot_machine, dumped_machine};
use idlewise_machine::boot::Kernel;
use idlewise_machine::boot::cpuid::Cpuid;
use idlewise_report::TextStyle;
use idlewise_report::boot::BootReport;
use idlewise_trace::read_small_file_of;

use crate::error::{Failure, Result};
use crate::input::open_stream;
use crate::screen;
use crate::sysroot::root;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// A dump of a machine with hundreds of CPUs has a few megabytes.
const DUMP_BYTE_COUNT_MAX: u64 = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  # This machine, under the kernel that runs
  idlewise lab boot

  # The same if it were booted with another command line or kernel
  idlewise lab boot --cmdline 'idle=nomwait' --kernel 6.1

  # A machine of which somebody sent a CPUID dump (`cpuid -1 -r`, InstLatx64's, libcpuid's)
  idlewise lab boot --cpuid epyc.txt

  # A captured machine: a folder with its proc/cpuinfo, proc/cmdline, sys/hypervisor, ...
  idlewise lab boot --sysroot ./captured --cpuid ./captured/cpuid.txt

The kernel chooses a default idle routine once, at boot: polling, MWAIT or HLT. It is used until a \
cpuidle driver takes over, and for good if none does: where the firmware offers no C-states, and \
in many virtual machines. The answer is derived from the sources of Linux 6.1.192, 6.12.117 and \
7.2.12, not measured; 5.18 stands for 4.1 to 5.19, which chose by vendor. /proc/cpuinfo does not \
show CPUID leaf 5; what depends on it is then unknown.

Exit status: 0, or 2 if a file can't be used or it is not an x86 machine.";

/// Explain which default idle routine an x86 machine gets at boot
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Boot {
    /// Read a captured machine's files below this folder instead of this machine's
    #[arg(long, value_name = "DIR")]
    sysroot: Option<PathBuf>,

    /// Take CPUID from this dump; without --sysroot, nothing else is read
    #[arg(long, value_name = "FILE")]
    cpuid: Option<PathBuf>,

    /// The kernel's command line [default: the machine's /proc/cmdline, or an empty one]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    cmdline: Option<String>,

    /// The kernel whose rules apply [default: the nearest to the machine's, or 6.12]
    #[arg(long, value_name = "VERSION", value_parser = kernel)]
    kernel: Option<Kernel>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Boot {
    /// Prints the choice.
    pub fn run(self) -> Result<ExitCode> {
        let mut machine = self.machine()?;
        if machine.facts.cpu.is_none() {
            let place = self.sysroot.as_deref().unwrap_or(Path::new("/"));
            let file = place.join("proc/cpuinfo");
            return Err(Failure::new(format_args!(
                "{}: no x86 CPU in it; other architectures have one default routine each, and an x86 \
                 machine needs this file or --cpuid",
                file.display()
            )));
        }
        if let Some(cmdline) = &self.cmdline {
            machine.set_cmdline(cmdline);
        }
        machine.set_kernel(self.kernel);
        let BootMachine { facts, name, driver, doubts, .. } = machine;
        let report = BootReport::new(facts, name, driver, &doubts);
        let mut out = screen::stdout();
        if self.json {
            out.json(SCHEMA, &report.to_json())?;
        } else {
            out.write_all(report.to_text(TextStyle::for_stdout().width).as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn machine(&self) -> Result<BootMachine> {
        let dump = self.cpuid.as_deref().map(dump).transpose()?;
        match (&self.sysroot, dump) {
            (None, Some(dump)) => Ok(dumped_machine(dump)),
            (sysroot, dump) => Ok(boot_machine(&root(sysroot.as_deref())?, dump)),
        }
    }
}

fn dump(path: &Path) -> Result<Cpuid> {
    let failure = |error: &dyn std::fmt::Display| {
        Failure::new(format_args!("cannot read {}: {error}", path.display()))
    };
    let bytes = read_small_file_of(open_stream(path)?, DUMP_BYTE_COUNT_MAX)
        .map_err(|error| failure(&error))?;
    let text = String::from_utf8_lossy(&bytes);
    Cpuid::parse(&text).map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))
}

fn kernel(version: &str) -> Result<Kernel, String> {
    let known = Kernel::ALL.into_iter().find(|kernel| kernel.as_str() == version);
    known.ok_or_else(|| {
        let known = Kernel::ALL.map(Kernel::as_str).join(", ");
        format!("the rules of {known} are known; use the nearest")
    })
}
