//! The terminal while the screen is shown: it is restored on every way out, a panic included.

use std::io::{self, Stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::app::App;
use super::view;
use crate::screen;

/// Whether the terminal is ours, for those who must restore it.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// The terminal, as ours until it is dropped.
pub struct Session(Terminal<CrosstermBackend<Stdout>>);

impl Session {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Fails if standard output is none.
    pub fn start() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // First, so that the message can be read.
            leave();
            before(panic);
        }));
        let terminal = Terminal::new(CrosstermBackend::new(screen::raw_stdout()))?;
        let session = Session(terminal);
        enter()?;
        Ok(session)
    }

    /// Draws what changed since the last time.
    ///
    /// # Errors
    /// Fails if the terminal is gone.
    pub fn draw(&mut self, app: &mut App) -> io::Result<()> {
        self.0.draw(|frame| view::draw(app, frame.area(), frame.buffer_mut()))?;
        Ok(())
    }

    /// Whether the terminal has another size than what was drawn. crossterm can lose the signal that says so, if a key
    /// comes at the same time.
    pub fn is_resized(&mut self) -> bool {
        self.0.size().is_ok_and(|size| size != self.0.get_frame().area().as_size())
    }

    /// Draws everything again with the next [`Session::draw`].
    ///
    /// # Errors
    /// Fails if the terminal is gone.
    pub fn clear(&mut self) -> io::Result<()> {
        execute!(screen::raw_stdout(), Clear(ClearType::All))?;
        // Its own `clear` asks the terminal where the cursor is, which not every terminal answers.
        self.0 = Terminal::new(CrosstermBackend::new(screen::raw_stdout()))?;
        Ok(())
    }

    /// Restores the terminal while `stopped` runs.
    ///
    /// # Errors
    /// Fails if the terminal is gone.
    pub fn without(&mut self, stopped: impl FnOnce()) -> io::Result<()> {
        leave();
        stopped();
        enter()?;
        self.clear()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    IS_ENTERED.store(true, Ordering::Relaxed);
    enable_raw_mode()?;
    execute!(screen::raw_stdout(), EnterAlternateScreen, Hide)
}

/// There is nothing to do about errors: the terminal may be gone.
fn leave() {
    if IS_ENTERED.swap(false, Ordering::Relaxed) {
        let _ = execute!(screen::raw_stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
