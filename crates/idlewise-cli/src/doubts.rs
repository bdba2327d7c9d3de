//! `--doubts`: the option of every command that prints doubts of different ranks.

use idlewise_report::{Notes, NotesForm};

#[derive(clap::Args, Clone, Copy)]
pub struct ShownDoubts {
    /// Print all assumptions and doubts in full, including minor ones (which change no governor's cost by more than about 1 %)
    #[arg(long)]
    doubts: bool,
}

impl ShownDoubts {
    /// Returns notes whose text has the doubts that the user wants to see.
    pub fn notes(self) -> Notes {
        Notes::default().in_form(if self.doubts { NotesForm::Full } else { NotesForm::Line })
    }
}
