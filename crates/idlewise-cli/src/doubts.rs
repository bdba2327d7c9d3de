//! `--doubts`: the option of every command that prints doubts of different ranks.

use idlewise_report::Notes;

#[derive(clap::Args, Clone, Copy)]
pub struct ShownDoubts {
    /// Print minor doubts too, those that move no governor's cost by more than about 1 %
    #[arg(long)]
    doubts: bool,
}

impl ShownDoubts {
    /// Returns notes whose text has the doubts that the user wants to see.
    pub fn notes(self) -> Notes {
        Notes::default().showing_minor(self.doubts)
    }
}
