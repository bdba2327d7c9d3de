//! `idlewise set hold`: the process that holds settings for the command that started it
//! (`idlewise_host::settings::hold`). The two talk by pipes: a byte to begin, a byte when it holds.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_host::settings::hold;

use crate::error::{Failure, Result};
use crate::screen;
use crate::signals::Signals;
use crate::sysroot::root;

/// Hold settings for a session.
#[derive(clap::Args)]
pub struct Hold {
    /// The session's number
    number: u64,

    /// The folder that the machine's files are under
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,
}

impl Hold {
    /// Holds until the session is over.
    pub fn run(self) -> Result<ExitCode> {
        let sysroot = self.sysroot.as_deref().map(std::path::absolute).transpose()?;
        let root = root(sysroot.as_deref())?;
        let signals = Signals::catch()?;
        // If its starter was killed before the journal names this process, there is nothing to hold.
        if std::io::stdin().lock().read_exact(&mut [0]).is_err() {
            return Ok(ExitCode::SUCCESS);
        }
        // No file system is kept busy.
        std::env::set_current_dir(Path::new("/"))?;
        let ready = || {
            let mut out = screen::raw_stdout();
            // If its starter was killed, the journal says so.
            let _ = out.write_all(b".").and_then(|()| out.flush());
        };
        hold(&root, self.number, signals.as_fd(), ready).map_err(Failure::new)?;
        Ok(ExitCode::SUCCESS)
    }
}
