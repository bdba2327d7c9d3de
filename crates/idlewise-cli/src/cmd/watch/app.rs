//! What the screen shows and what keys do, without a terminal.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use idlewise_host::watch::Lack;
use idlewise_report::watch::{
    Figures, Grouping, Layout, Line, Matching, PackageLine, SortKey, lines, sort,
};

/// Everything that is on the screen.
#[derive(Default)]
pub struct App {
    /// The CPUs and their states.
    pub layout: Layout,
    /// What they did in the last interval; `None` until there are two readings.
    pub figures: Option<Figures>,
    /// What packages did.
    pub packages: Vec<PackageLine>,
    /// What is not known of packages, and why.
    pub package_lacks: Vec<String>,
    /// Who holds latency limits, as far as that is known.
    pub limit_holders: Vec<String>,
    /// Whether the limit of the whole machine can be read.
    pub machine_limit_lack: Option<Lack>,
    /// The seconds between readings.
    pub interval_s: f64,
    /// What a line is about.
    pub grouping: Grouping,
    /// What lines are sorted by.
    pub sort: SortKey,
    /// Whether the order is turned round.
    pub is_reversed: bool,
    /// Which CPUs are shown.
    pub matching: Matching,
    /// The text of the filter.
    pub filter: String,
    /// The filter that is being typed.
    pub typed: Option<String>,
    /// Whether the figures stand still.
    pub is_paused: bool,
    /// Whether the keys are explained.
    pub shows_help: bool,
    /// How many lines are above the first that is shown.
    pub offset: usize,
    /// How many lines fit, as last drawn.
    pub page: usize,
    /// Something to say: what changed, what was recorded, what went wrong.
    pub message: Option<String>,
    /// Whether a recording is running.
    pub is_recording: bool,
    /// Whether there may be colours.
    pub has_colours: bool,
}

/// What a key asks the caller to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing but to draw again.
    Draw,
    /// End.
    Quit,
    /// Record ten seconds.
    Record,
    /// Stop, as ctrl-z does.
    Suspend,
    /// Draw everything again.
    Redraw,
    /// Go on after a pause, with a reading of its own.
    Resume,
}

impl App {
    /// Shows this machine, with nothing read so far.
    pub fn new(layout: Layout, interval_s: f64) -> Self {
        App { layout, interval_s, page: 1, ..App::default() }
    }

    /// Returns the lines to show, in their order.
    pub fn lines(&self) -> Vec<Line> {
        let Some(figures) = &self.figures else { return Vec::new() };
        let mut lines = lines(&self.layout, figures, self.grouping, &self.matching);
        sort(&mut lines, self.sort, self.is_reversed);
        lines
    }

    /// Does what a key stands for.
    pub fn key(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c' | 'd') => return Wish::Quit,
                KeyCode::Char('z') => return Wish::Suspend,
                KeyCode::Char('l') => return Wish::Redraw,
                _ => return Wish::Draw,
            }
        }
        if self.typed.is_some() {
            self.type_filter(key.code);
            return Wish::Draw;
        }
        if self.shows_help {
            self.shows_help = false;
            return if key.code == KeyCode::Char('q') { Wish::Quit } else { Wish::Draw };
        }
        match key.code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Char('r') => return Wish::Record,
            KeyCode::Char(' ' | 'p') => {
                self.is_paused = !self.is_paused;
                if !self.is_paused {
                    return Wish::Resume;
                }
            }
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('S') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('g') => {
                self.grouping = self.grouping.next();
                self.offset = 0;
            }
            KeyCode::Char('/' | 'f') => self.typed = Some(self.filter.clone()),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Esc => self.message = None,
            KeyCode::Up | KeyCode::Char('k') => self.offset = self.offset.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.offset += 1,
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(self.page),
            KeyCode::PageDown => self.offset += self.page,
            KeyCode::Home => self.offset = 0,
            KeyCode::End => self.offset = usize::MAX,
            _ => {}
        }
        Wish::Draw
    }

    fn type_filter(&mut self, code: KeyCode) {
        /// Longer than any list that somebody types.
        const LENGTH_MAX: usize = 60;
        let Some(typed) = &mut self.typed else { return };
        match code {
            KeyCode::Char(character) if typed.chars().count() < LENGTH_MAX => typed.push(character),
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Esc => self.typed = None,
            KeyCode::Enter => match Matching::parse(typed) {
                Ok(matching) => {
                    self.matching = matching;
                    self.filter = self.typed.take().unwrap_or_default().trim().to_owned();
                    self.offset = 0;
                    self.message = None;
                }
                Err(expected) => self.message = Some(expected.to_owned()),
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(app: &mut App, keys: &str) -> Wish {
        let mut wish = Wish::Draw;
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\u{8}' => KeyCode::Backspace,
                '\u{1b}' => KeyCode::Esc,
                key => KeyCode::Char(key),
            };
            wish = app.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        wish
    }

    fn app() -> App {
        App::new(Layout::default(), 1.0)
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let mut app = app();
        assert_eq!(press(&mut app, "q"), Wish::Quit);
        assert_eq!(press(&mut app, "r"), Wish::Record);
        press(&mut app, "s");
        assert_eq!((app.sort, app.is_reversed), (SortKey::Running, false));
        press(&mut app, "S");
        assert!(app.is_reversed);
        press(&mut app, "gg");
        assert_eq!(app.grouping, Grouping::Package);
        assert_eq!(press(&mut app, " "), Wish::Draw);
        assert!(app.is_paused);
        assert_eq!(press(&mut app, "p"), Wish::Resume);
        let control = |code| KeyEvent::new(KeyCode::Char(code), KeyModifiers::CONTROL);
        assert_eq!(app.key(control('c')), Wish::Quit);
        assert_eq!(app.key(control('z')), Wish::Suspend);
    }

    #[test]
    fn while_typing_a_filter_letters_are_letters() {
        let mut app = app();
        press(&mut app, "/qrs");
        assert_eq!(app.typed.as_deref(), Some("qrs"));
        press(&mut app, "\n");
        assert!(app.message.as_deref().is_some_and(|message| message.contains("0-3,8")));
        press(&mut app, "\u{8}\u{8}\u{8}4-7\n");
        assert_eq!((app.typed.as_deref(), app.filter.as_str()), (None, "4-7"));
        assert_eq!(app.message, None);
        press(&mut app, "/9\u{1b}");
        assert_eq!(app.filter, "4-7", "escape changes nothing");
        press(&mut app, "/\u{8}\u{8}\u{8}\n");
        assert_eq!(app.matching, Matching::default());
    }

    #[test]
    fn any_key_closes_the_help() {
        let mut app = app();
        press(&mut app, "?");
        assert!(app.shows_help);
        press(&mut app, "s");
        assert_eq!((app.shows_help, app.sort), (false, SortKey::Cpu));
    }
}
