//! `idlewise generate`: manual pages and completions, from the definition of the command line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap_complete::Shell;

use super::Definition;
use crate::error::Result;
use crate::{output, screen};

const EXAMPLES: &str = "\
Examples:
  # Completions for the shell that you use
  mkdir -p ~/.local/share/bash-completion/completions ~/.zfunc ~/.config/fish/completions
  idlewise generate completions bash > ~/.local/share/bash-completion/completions/idlewise
  idlewise generate completions zsh > ~/.zfunc/_idlewise
  idlewise generate completions fish > ~/.config/fish/completions/idlewise.fish

  # Manual pages: idlewise.1, idlewise-replay.1 and so on
  mkdir -p ~/.local/share/man/man1 && idlewise generate man ~/.local/share/man/man1

Packages, archives and `make install` bring both.";

/// Generate manual pages and shell completions
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Generate {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Print completions for a shell
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Write a manual page for each command into a folder
    Man {
        /// The folder, which must exist
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        /// Replace pages that exist
        #[arg(long)]
        force: bool,
    },
}

impl Generate {
    /// Generates what was requested.
    pub fn run(self, definition: Definition) -> Result<ExitCode> {
        let mut command = definition();
        match self.what {
            What::Completions { shell } => {
                command.build();
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut command, "idlewise", &mut text);
                screen::raw_stdout().write_all(&text)?;
            }
            What::Man { folder, force } => {
                command = without_help(command);
                command.build();
                write_pages(&command, &folder, force)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Without the commands called `help`: they have no page, so none should refer to it.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Writes the pages of a command and all its subcommands.
fn write_pages(command: &clap::Command, folder: &Path, force: bool) -> Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let page = clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .source(concat!("idlewise ", env!("CARGO_PKG_VERSION")))
        .manual("idlewise");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let file = output::create(&folder.join(format!("{name}.1")), force, &[])?;
    // `--compare` is a command, and its page has no dashes.
    output::write(file, String::from_utf8_lossy(&text).replace("replay\\-\\-\\-", "replay\\-"))?;
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    for command in below {
        write_pages(command, folder, force)?;
    }
    Ok(())
}
