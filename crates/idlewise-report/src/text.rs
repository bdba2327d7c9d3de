//! A table as text.
//!
//! ```text
//! Governors on spr
//!            too   delay        <- headings, wrapped at spaces
//!           deep     p99
//! governor     %      us        <- the unit of every number below
//! --------  -----  ------
//! menu      43.1   290.0
//! teo        3.1*    1.5*       <- the best of each column
//! haltpoll     -    12.0        <- absent, not zero
//! Not shown at this width: stays that fit, note (--json has all).
//! ```
//!
//! In a table that is too wide, the longest texts are cut with `…`, and then long keys in their middle. If that is not
//! enough, columns are dropped by [`Priority`], the rightmost first. What no row has is not shown, nor a detail that counts what never
//! happened. The best value of a column has a trailing `*`; if all ranked rows are equal there is no best.

use std::fmt::Write as _;
use std::io::IsTerminal;

use crate::columns::{Better, Heading, Priority, Unit};
use crate::scale::Scale;
use crate::shown::shown_in_line;
use crate::table::{Row, Table};
use crate::value::Value;

/// The default width of a table.
pub const WIDTH_DEFAULT: usize = 100;

/// Text is not cut below this width to keep a column of the answer.
const TEXT_WIDTH_MIN: usize = 12;

/// And no key below this one.
const KEY_WIDTH_MIN: usize = 32;

const GAP: &str = "  ";

/// The headings of an interval's ends.
const INTERVAL_ENDS: [[&str; 2]; 2] = [["from", "to"], ["lowest", "highest"]];

/// How to print a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// The maximum length of a line of sentences, in characters.
    pub width: usize,
    /// The same of a table, which may be wider: a row is easy to follow, a sentence is not.
    pub table_width: usize,
    /// Whether to colour the best values as well.
    pub colour: bool,
}

impl Default for TextStyle {
    /// The width is [`WIDTH_DEFAULT`]; no colour.
    fn default() -> Self {
        TextStyle::of_width(WIDTH_DEFAULT)
    }
}

impl TextStyle {
    /// The style of a terminal or a page with so many columns, without colour.
    pub fn of_width(columns: usize) -> Self {
        let width = columns.min(WIDTH_DEFAULT);
        TextStyle { width, table_width: columns, colour: false }
    }

    /// If standard output is a terminal: its width, and colour unless `NO_COLOR` is set (<https://no-color.org>).
    pub fn for_stdout() -> Self {
        let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        #[expect(clippy::disallowed_methods, reason = "only asked whether it is a terminal")]
        let stdout = std::io::stdout();
        if !stdout.is_terminal() {
            return Self::default();
        }
        let size = rustix::termios::tcgetwinsize(&stdout);
        // A terminal that does not know its size says 0.
        let columns = size.map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { WIDTH_DEFAULT } else { columns };
        TextStyle { colour: is_wanted, ..Self::of_width(columns) }
    }
}

/// The layout of a column.
struct Layout {
    column: Heading,
    unit: &'static str,
    cells: Vec<String>,
    is_best: Vec<bool>,
    /// 1 if any value is marked, because the others must leave room for the mark.
    mark_width: usize,
    /// The width of the longest cell.
    natural_width: usize,
    /// The width that it gets.
    width: usize,
}

impl Table {
    /// Returns the form for people; see [`TextStyle`]. Every line ends with a newline.
    pub fn to_text(&self, style: &TextStyle) -> String {
        table_text(self, style)
    }
}

fn table_text(table: &Table, style: &TextStyle) -> String {
    let mut layouts = layouts(table);
    let hidden = fit(&mut layouts, style.table_width);

    let mut text = String::new();
    if !table.title.is_empty() {
        text.push_str(&crate::wrap(&table.title, style.width, 0));
        text.push('\n');
    }
    write_headings(&mut text, &layouts);
    for row in 0..table.rows.len() {
        let cells = layouts.iter().map(|layout| layout.cell(row, style.colour));
        write_line(&mut text, cells);
    }
    if !hidden.is_empty() {
        let note = format!("Not shown at this width: {} (--json has all).", hidden.join(", "));
        text.push_str(&crate::wrap(&note, style.width, 0));
        text.push('\n');
    }
    text
}

/// The layouts of all columns that are shown if there is room.
fn layouts(table: &Table) -> Vec<Layout> {
    let shown = (0..table.columns.len()).filter(|index| !is_empty(table, *index));
    shown.map(|index| Layout::new(table, index)).collect()
}

/// A column as text that no width limits.
pub(crate) struct ShownColumn {
    pub(crate) heading: Heading,
    /// The unit of its cells.
    pub(crate) unit: &'static str,
    pub(crate) cells: Vec<String>,
    pub(crate) values: Vec<Value>,
}

/// Every column but those that say nothing.
pub(crate) fn shown_columns(table: &Table) -> Vec<ShownColumn> {
    let shown = |layout: Layout| {
        let index = table.columns.iter().position(|column| *column == layout.column);
        let index = index.expect("it is a column of the table");
        let values = table.rows.iter().map(|row| row.values[index].clone()).collect();
        ShownColumn { heading: layout.column, unit: layout.unit, cells: layout.cells, values }
    };
    layouts(table).into_iter().map(shown).collect()
}

/// Whether a column says nothing: no row has it, or it is a detail that counts what never happened. It is not listed as
/// dropped.
fn is_empty(table: &Table, index: usize) -> bool {
    let Heading { priority, unit, .. } = table.columns[index];
    let all = |is_nothing: &dyn Fn(&Value) -> bool| {
        !table.rows.is_empty() && table.rows.iter().all(|row| is_nothing(&row.values[index]))
    };
    let is_zero = |value: &Value| value.number() == Some(0.0);
    match priority {
        Priority::Key => false,
        Priority::Detail if unit == Unit::Count => all(&|it| *it == Value::Absent || is_zero(it)),
        _ => all(&|value| *value == Value::Absent),
    }
}

impl Layout {
    fn new(table: &Table, index: usize) -> Self {
        let column = table.columns[index];
        let values = || table.rows.iter().map(|row| &row.values[index]);
        let is_alike = |other: usize| {
            let other = &table.columns[other];
            other.unit == column.unit
                && [column.id, other.id].iter().all(|id| table.alike.contains(id))
        };
        let alike = (0..table.columns.len()).filter(|&other| other == index || is_alike(other));
        let of = |other: usize| table.rows.iter().filter_map(move |row| row.values[other].number());
        let scale = Scale::new(column.unit, alike.flat_map(of));
        let scale = if column.is_precise { scale.precise(of(index)) } else { scale };
        let cells: Vec<String> = values()
            .map(|value| match (value, value.number()) {
                (Value::Text(text), _) => shown_in_line(text).into_owned(),
                (_, Some(number)) => scale.print(number),
                (_, None) => "-".to_owned(),
            })
            .collect();
        let is_best = best(table, index);
        let mark_width = usize::from(is_best.contains(&true));
        let widths = cells.iter().map(|cell| chars(cell) + mark_width);
        let words = column.heading.split(' ').map(chars);
        let width = widths.chain(words).chain([chars(scale.unit)]).max().unwrap_or(0);
        Layout { column, unit: scale.unit, cells, is_best, mark_width, natural_width: width, width }
    }

    fn is_text(&self) -> bool {
        self.column.unit == Unit::Text
    }

    fn is_key(&self) -> bool {
        self.column.priority == Priority::Key
    }

    fn pad(&self, text: &str) -> String {
        // Not with a format string: its width has 16 bits, and a log's text may be longer.
        let padding = " ".repeat(self.width.saturating_sub(chars(text)));
        if self.is_text() { format!("{text}{padding}") } else { format!("{padding}{text}") }
    }

    /// A cell, padded to the column's width. Colour is added last, because escapes have no width.
    fn cell(&self, row: usize, colour: bool) -> String {
        let cut = if self.is_key() { shorten_middle } else { shorten };
        let mut text = cut(&self.cells[row], self.width - self.mark_width);
        if self.mark_width == 0 {
            return self.pad(&text);
        }
        text.push(if self.is_best[row] { '*' } else { ' ' });
        let padded = self.pad(&text);
        if colour && self.is_best[row] { format!("\u{1b}[1;32m{padded}\u{1b}[0m") } else { padded }
    }

    /// A heading or unit, aligned with the digits rather than with the mark.
    fn head(&self, text: &str) -> String {
        let has_room = chars(text) + self.mark_width <= self.width;
        if self.mark_width == 1 && !self.is_text() && has_room {
            return self.pad(&format!("{text} "));
        }
        self.pad(text)
    }
}

/// Which rows have the best value of a column. None if all are equal.
fn best(table: &Table, index: usize) -> Vec<bool> {
    let number = |row: &Row| row.values[index].number().filter(|_| row.is_ranked);
    let ranked = || table.rows.iter().filter_map(number);
    let (least, greatest) =
        ranked().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, g), n| (l.min(n), g.max(n)));
    let best = match table.columns[index].better {
        Some(Better::Lower) if least < greatest => Some(least),
        Some(Better::Higher) if least < greatest => Some(greatest),
        _ => None,
    };
    table.rows.iter().map(|row| best.is_some() && number(row) == best).collect()
}

/// Makes the columns fit, and returns the headings of those that were dropped, in order.
fn fit(layouts: &mut Vec<Layout>, width: usize) -> Vec<String> {
    let names = names(layouts);
    let mut hidden: Vec<usize> = Vec::new();
    let mut places: Vec<usize> = (0..layouts.len()).collect();
    loop {
        shrink(layouts, width);
        if total_width(layouts) <= width {
            break;
        }
        let lowest = layouts.iter().map(|layout| layout.column.priority).max();
        let Some(priority) = lowest.filter(|priority| *priority > Priority::Key) else {
            break;
        };
        let last = layouts.iter().rposition(|layout| layout.column.priority == priority);
        let last = last.expect("the priority was taken from the list");
        // Half an interval says nothing.
        let first = last.checked_sub(1).filter(|&first| {
            let [start, end] = [first, last].map(|at| &layouts[at].column);
            start.priority == priority && INTERVAL_ENDS.contains(&[start.heading, end.heading])
        });
        for at in (first.unwrap_or(last)..=last).rev() {
            hidden.push(places.remove(at));
            layouts.remove(at);
        }
    }
    hidden.sort_unstable();
    hidden.into_iter().map(|place| names[place].clone()).collect()
}

/// The headings, those of an interval's ends with that of the column before them: `power from`.
fn names(layouts: &[Layout]) -> Vec<String> {
    let mut main = "";
    let name = |layout: &Layout| match layout.column.heading {
        end if INTERVAL_ENDS.as_flattened().contains(&end) => {
            format!("{main} {end}").trim().to_owned()
        }
        heading => {
            main = heading;
            heading.to_owned()
        }
    };
    layouts.iter().map(name).collect()
}

/// Narrows the widest text column step by step until the table fits or no text can be cut; the keys last.
fn shrink(layouts: &mut [Layout], width: usize) {
    for layout in layouts.iter_mut() {
        layout.width = layout.natural_width;
    }
    for (are_keys, least) in [(false, TEXT_WIDTH_MIN), (true, KEY_WIDTH_MIN)] {
        while total_width(layouts) > width {
            let texts = layouts.iter_mut().filter(|l| l.is_text() && l.is_key() == are_keys);
            match texts.max_by_key(|layout| layout.width) {
                Some(widest) if widest.width > least => widest.width -= 1,
                _ => break,
            }
        }
    }
}

fn total_width(layouts: &[Layout]) -> usize {
    let gaps = layouts.len().saturating_sub(1) * GAP.len();
    layouts.iter().map(|layout| layout.width).sum::<usize>() + gaps
}

/// Aligns headings at the bottom: the unit in the last line, and short headings just above it.
fn write_headings(text: &mut String, layouts: &[Layout]) {
    let stacks: Vec<Vec<String>> = layouts
        .iter()
        .map(|layout| {
            let wrapped = crate::wrap(layout.column.heading, layout.width, 0);
            let mut lines: Vec<String> = wrapped.lines().map(str::to_owned).collect();
            if !layout.unit.is_empty() {
                lines.push(layout.unit.to_owned());
            }
            lines
        })
        .collect();
    let height = stacks.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        let cells = layouts.iter().zip(&stacks).map(|(layout, stack)| {
            let empty_count = height - stack.len();
            layout.head(line.checked_sub(empty_count).map_or("", |line| &stack[line]))
        });
        write_line(text, cells);
    }
    write_line(text, layouts.iter().map(|layout| "-".repeat(layout.width)));
}

fn write_line(text: &mut String, cells: impl Iterator<Item = String>) {
    let line = cells.collect::<Vec<String>>().join(GAP);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", line.trim_end());
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

fn shorten(text: &str, width: usize) -> String {
    if chars(text) <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Keys that begin alike, such as paths and lists of CPUs, often differ at their ends.
pub(crate) fn shorten_middle(text: &str, width: usize) -> String {
    let Some(dropped) = chars(text).checked_sub(width).filter(|dropped| *dropped > 0) else {
        return text.to_owned();
    };
    let head = width.saturating_sub(1).div_ceil(2);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(head + dropped + 1).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Column;

    type Values = Vec<Value>;
    type C = Column<Values>;
    const GOVERNOR: C =
        C::text("governor", "governor", |row| row[0].clone()).means("Who decides.").key();
    const TOO_DEEP: C = C::ratio("too_deep_ratio", "too deep", |row| row[1].clone())
        .means("Share.")
        .lower_is_better();
    const DELAY: C =
        C::ns("delay_p99_ns", "delay p99", |row| row[2].clone()).means("Delay.").lower_is_better();
    const FIT: C = C::count("fit_count", "stays that fit", |row| row[3].clone())
        .means("Fits.")
        .higher_is_better()
        .detail();
    const NOTE: C =
        C::text("note", "note", |row| row[row.len() - 1].clone()).means("Words.").detail();

    fn table() -> Table {
        let none = Value::Absent;
        let rows: [[Value; 5]; 4] = [
            [
                "menu".into(),
                0.431.into(),
                290_000_u64.into(),
                9_000_u64.into(),
                "slow in the morning".into(),
            ],
            ["teo".into(), 0.031.into(), 1_500_u64.into(), 9_000_u64.into(), none.clone()],
            ["haltpoll".into(), none.clone(), 0_u64.into(), 12_u64.into(), none.clone()],
            ["oracle".into(), 0.0.into(), 0_u64.into(), 10_000_u64.into(), none],
        ];
        let columns = [GOVERNOR, TOO_DEEP, DELAY, FIT, NOTE];
        Table::new("Governors on spr", &columns, rows.map(Values::from)).ranked_if(|row| row != 3)
    }

    fn untitled(columns: &[C], rows: impl IntoIterator<Item = Values>) -> Table {
        Table::new("", columns, rows)
    }

    fn style(width: usize) -> TextStyle {
        TextStyle::of_width(width)
    }

    /// A format string's width has 16 bits.
    #[test]
    fn a_cell_may_be_longer_than_a_format_width() {
        let long = "x".repeat(70_000);
        let table = untitled(&[GOVERNOR], [vec![long.as_str().into()], vec!["y".into()]]);
        assert!(table.to_text(&TextStyle::of_width(100_000)).contains(&long));
    }

    #[test]
    fn marks_the_best_of_ranked_rows_and_tells_absent_from_zero() {
        assert_eq!(
            table().to_text(&style(100)),
            "\
Governors on spr
           too   delay   stays
          deep     p99    that
governor     %      us     fit   note
--------  -----  ------  ------  -------------------
menu      43.1   290.0    9000*  slow in the morning
teo        3.1*    1.5    9000*  -
haltpoll     -       0*     12   -
oracle       0       0   10000   -
"
        );
    }

    #[test]
    fn colour_is_added_to_the_mark() {
        let text = table().to_text(&TextStyle { colour: true, ..style(100) });
        assert!(text.contains("\u{1b}[1;32m 3.1*\u{1b}[0m"), "{text:?}");
        let plain = text.replace("\u{1b}[1;32m", "").replace("\u{1b}[0m", "");
        assert_eq!(plain, table().to_text(&style(100)));
    }

    #[test]
    fn cuts_words_before_it_drops_columns() {
        assert_eq!(
            table().to_text(&style(47)),
            "\
Governors on spr
           too   delay   stays
          deep     p99    that
governor     %      us     fit   note
--------  -----  ------  ------  --------------
menu      43.1   290.0    9000*  slow in the m…
teo        3.1*    1.5    9000*  -
haltpoll     -       0*     12   -
oracle       0       0   10000   -
"
        );
    }

    #[test]
    fn drops_details_from_the_right_and_says_so() {
        assert_eq!(
            table().to_text(&style(30)),
            "\
Governors on spr
           too   delay
          deep     p99
governor     %      us
--------  -----  ------
menu      43.1   290.0
teo        3.1*    1.5
haltpoll     -       0*
oracle       0       0
Not shown at this width: stays
that fit, note (--json has
all).
"
        );
    }

    /// `from, to` alone does not say of what.
    #[test]
    fn the_ends_of_an_interval_are_named_with_what_they_are_of() {
        const POWER: C = C::count("power", "power", |row| row[1].clone()).means("Power.");
        const LOW: C = C::count("low", "from", |row| row[2].clone()).means("Low.").detail();
        const HIGH: C = C::count("high", "to", |row| row[3].clone()).means("High.").detail();
        let row: [Value; 4] = ["menu".into(), 1_u64.into(), 1_u64.into(), 2_u64.into()];
        let table = untitled(&[GOVERNOR, POWER, LOW, HIGH], [Values::from(row)]);
        // No half of an interval, though there is room for it.
        assert_eq!(table.to_text(&style(24)).lines().next(), Some("governor  power"));
        let text = table.to_text(&style(18));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.ends_with("Not shown at this width: power from, power to (--json has all)."),
            "{text}"
        );
    }

    #[test]
    fn keeps_the_key_however_narrow() {
        let text = table().to_text(&style(5));
        assert!(text.contains("\ngovernor\n--------\nmenu\nteo\nhaltpoll\noracle\n"), "{text}");
    }

    /// `latency=2us@0,2,4,…` of a large machine took 255 columns, and no figure was shown.
    #[test]
    fn a_long_key_is_cut_in_its_middle_before_a_figure_is_dropped() {
        let key = format!("latency=2us@{}4094", "0,".repeat(200));
        let rows = [vec![key.as_str().into(), 0.431.into()], vec!["menu".into(), 0.5.into()]];
        let text = untitled(&[GOVERNOR, TOO_DEEP], rows).to_text(&style(60));
        let line = text.lines().nth(4).unwrap();
        assert!(line.starts_with("latency=2us@0,") && line.contains('…'), "{text}");
        assert!(line.ends_with("0,0,4094  43.1*"), "{text}");
        assert!(text.lines().all(|line| chars(line) <= 60), "{text}");
    }

    #[test]
    fn a_dropped_column_gives_its_room_to_the_words_that_were_cut() {
        const WORDS: C = C::text("words", "words", |row| row[1].clone()).means("Words.");
        let row = vec!["a".into(), "twenty characters ok".into(), "x".repeat(40).into()];
        let table = untitled(&[GOVERNOR, WORDS, NOTE], [row]);
        assert_eq!(
            table.to_text(&style(32)).lines().nth(2),
            Some("a         twenty characters ok"),
        );
    }

    #[test]
    fn a_detail_that_no_row_has_is_not_shown() {
        let table = untitled(&[GOVERNOR, NOTE], [vec!["menu".into(), Value::Absent]]);
        assert_eq!(table.to_text(&style(100)), "governor\n--------\nmenu\n");
    }

    #[test]
    fn a_detail_that_never_happened_is_not_shown() {
        let rows = |count: u64| {
            let row = vec!["menu".into(), Value::Absent, Value::Absent, count.into()];
            untitled(&[GOVERNOR, FIT], [row]).to_text(&style(100))
        };
        assert_eq!(rows(0), "governor\n--------\nmenu\n");
        assert!(rows(1).contains("that"), "{}", rows(1));
    }

    #[test]
    fn a_wide_terminal_shows_more_columns_and_no_longer_sentences() {
        let wide = TextStyle::of_width(200);
        assert_eq!((wide.width, wide.table_width), (WIDTH_DEFAULT, 200));
        let narrow = TextStyle::of_width(40);
        assert_eq!((narrow.width, narrow.table_width), (40, 40));
        let row = vec!["a".into(), "x".repeat(120).into()];
        let table = untitled(&[GOVERNOR, NOTE], [row]);
        assert!(table.to_text(&wide).contains(&"x".repeat(120)));
        assert!(table.to_text(&TextStyle::default()).contains('…'));
    }

    #[test]
    fn nothing_is_best_where_all_say_the_same() {
        let rows = ["menu", "teo"].map(|name| vec![name.into(), 0.5.into()]);
        let table = untitled(&[GOVERNOR, TOO_DEEP], rows);
        assert!(!table.to_text(&style(100)).contains('*'));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let table = untitled(&[GOVERNOR], [vec!["a\u{1b}[2Jb\nc".into()]]);
        assert_eq!(table.to_text(&style(100)), "governor\n--------\na␛[2Jb␊c\n");
    }

    #[test]
    fn a_table_without_rows_still_has_headings() {
        let table = untitled(&[GOVERNOR, DELAY], []);
        assert_eq!(
            table.to_text(&style(100)),
            "          delay\n            p99\ngovernor     ns\n--------  -----\n"
        );
    }
}
