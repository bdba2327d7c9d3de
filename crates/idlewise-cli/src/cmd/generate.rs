//! `idlewise generate`: manual pages and completions, from the definition of the command line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::Resettable;
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
                command = for_pages(command);
                command.build();
                write_pages(&command, &folder, force)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Without the commands called `help`: they have no page, so none should refer to it. And with the text of options that `-h`
/// leaves out, which a page would name and not explain.
fn for_pages(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| argument.hide_short_help(false));
    command.disable_help_subcommand(true).mut_subcommands(for_pages)
}

/// Writes the pages of a command and all its subcommands.
fn write_pages(command: &clap::Command, folder: &Path, force: bool) -> Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let examples = command.get_after_long_help().or(command.get_after_help());
    let examples = examples.map(|text| as_it_is(&text.to_string())).unwrap_or_default();
    let page = command.clone().after_help(Resettable::Reset).after_long_help(Resettable::Reset);
    let page = clap_mangen::Man::new(page)
        .title(name.to_uppercase())
        .source(concat!("idlewise ", env!("CARGO_PKG_VERSION")))
        .manual("idlewise");
    let mut text = Vec::new();
    page.render(&mut text)?;
    // `--compare` is a command, and its page has no dashes. A page has no date, and the version must not take its place.
    let text = String::from_utf8_lossy(&text).replace("replay\\-\\-\\-", "replay\\-");
    let text = text.replacen(" 1  \"idlewise ", " 1 \"\" \"idlewise ", 1);
    let file = output::create(&folder.join(format!("{name}.1")), force, &[])?;
    output::write(file, text + &examples)?;
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    for command in below {
        write_pages(command, folder, force)?;
    }
    Ok(())
}

/// The text behind a command's help. Lines of examples and lists stay as they are: one filled with the next cannot be
/// pasted.
fn as_it_is(text: &str) -> String {
    let mut page = String::from(".SH EXAMPLES\n");
    for paragraph in text.trim_start_matches("Examples:\n").split("\n\n") {
        let stays = paragraph.lines().any(|line| line.starts_with([' ', '-']));
        page.push_str(if stays { ".PP\n.nf\n" } else { ".PP\n" });
        for line in paragraph.lines() {
            // A dot or a quote at the start of a line would be a request.
            page.push_str("\\&");
            page.push_str(&line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq"));
            page.push('\n');
        }
        page.push_str(if stays { ".fi\n" } else { "" });
    }
    page
}
