//! Draws the screen. Every text is plain without colours: a state has its number in the bars, and running time
//! and stays that are not over have characters of their own.

use idlewise_host::watch::Lack;
use idlewise_report::counted;
use idlewise_report::watch::{
    Condition, Grouping, Line, Matching, PackageLine, SortKey, bar, latency, lines, symbol,
};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::app::App;

/// The least that has room for a line with its bar.
const WIDTH_MIN: u16 = 60;
const HEIGHT_MIN: u16 = 10;
/// A narrower bar says nothing.
const BAR_WIDTH_MIN: usize = 10;
/// A wider one only moves the numbers away, unless there is nothing else to show.
const BAR_WIDTH_MAX: usize = 100;
/// The lines above the CPUs.
const HEAD_HEIGHT: u16 = 6;
/// The colours of states, shallowest first.
const COLOURS: [Color; 6] =
    [Color::Yellow, Color::Cyan, Color::Green, Color::Blue, Color::Magenta, Color::Gray];

const HELP: [&str; 20] = [
    "q, ctrl-c    quit",
    "space, p     pause: the figures stand still",
    "s            sort by the next column; S turns the order round",
    "g            group: CPUs, caches, packages, the whole machine",
    "/            filter: CPUs such as 0-3,8, or `limited`; empty for all",
    "r            record ten seconds into a file (as root)",
    "up, down, page up, page down, home, end    move",
    "ctrl-l       draw the screen anew",
    "",
    "Bars: # running, a digit for each idle state, . idle in a stay",
    "that is in progress; the kernel counts a stay when it ends.",
    "wake-ups     entries of idle states each second",
    "too deep     share of entries whose stay was too short for the",
    "             state (the kernel's `above`)",
    "too shallow  share whose stay would have paid for a deeper state",
    "             (`below`)",
    "waiting      entries times the exit latency that the driver",
    "             declares, as a share of time",
    "limit        the lowest limit of the exit latency (PM QoS)",
    "Press any key to go on.",
];

/// A column of numbers beside the bars.
struct Figure {
    heading: String,
    key: Option<SortKey>,
    text: Box<dyn Fn(&Line) -> String>,
}

impl Figure {
    fn new(
        heading: impl Into<String>,
        key: Option<SortKey>,
        text: impl Fn(&Line) -> String + 'static,
    ) -> Self {
        Figure { heading: heading.into(), key, text: Box::new(text) }
    }

    fn width(&self) -> usize {
        self.heading.chars().count().max(6)
    }
}

/// Draws everything.
pub fn draw(app: &mut App, area: Rect, buffer: &mut Buffer) {
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let text = format!(
            "too small: {}x{}, needed: {WIDTH_MIN}x{HEIGHT_MIN}; q quits",
            area.width, area.height
        );
        put(buffer, area, 0, 0, &text, Style::default());
        return;
    }
    draw_head(app, area, buffer);
    draw_lines(app, area, buffer);
    draw_foot(app, area, buffer);
    if app.shows_help {
        draw_help(area, buffer);
    }
}

/// Writes as much of a text as fits.
fn put(buffer: &mut Buffer, area: Rect, x: usize, y: u16, text: &str, style: Style) {
    let Ok(x) = u16::try_from(x) else { return };
    if x < area.width && y < area.height {
        buffer.set_stringn(area.x + x, area.y + y, text, usize::from(area.width - x), style);
    }
}

fn draw_head(app: &App, area: Rect, buffer: &mut Buffer) {
    let plain = Style::default();
    let bold = plain.add_modifier(Modifier::BOLD);
    let layout = &app.layout;
    let cpus = counted(layout.cpus.len(), "CPU");
    let driver = match (&layout.driver, &layout.governor) {
        (Some(driver), Some(governor)) => format!("{driver}, {governor}"),
        (Some(driver), None) => driver.clone(),
        (None, _) => "no cpuidle driver".to_owned(),
    };
    let title = format!("idlewise watch: {driver}, {cpus}, every {} s", app.interval_s);
    put(buffer, area, 0, 0, &title, bold);
    let mark = match (app.is_paused, app.is_recording) {
        (true, _) => "PAUSED",
        (false, true) => "RECORDING",
        (false, false) => "",
    };
    put(buffer, area, usize::from(area.width).saturating_sub(mark.len()), 0, mark, bold);

    let Some(figures) = &app.figures else {
        put(buffer, area, 0, 1, "reading the counters for the first time", plain);
        return;
    };
    let all = lines(layout, figures, Grouping::Machine, &Matching::default());
    let all = all.first().cloned().unwrap_or_default();
    let sum = match layout.has_no_states() {
        true => format!(
            "all: running {} %; idle time by /proc/stat, the kernel counts no states here",
            percent(all.running_ratio)
        ),
        false => format!(
            "all: running {} %, {} wake-ups/s, deep {} %, shallow {} %, waiting {} %",
            percent(all.running_ratio),
            rate(all.entries_per_s),
            percent(all.too_deep_ratio),
            percent(all.too_shallow_ratio),
            percent(all.waiting_ratio),
        ),
    };
    put(buffer, area, 0, 1, &sum, plain);
    let machine = match figures.machine_limit_ns {
        Some(limit_ns) => latency(limit_ns),
        None => match app.machine_limit_lack {
            None => "none".to_owned(),
            Some(Lack::RootOnly) => "unknown (root only)".to_owned(),
            Some(Lack::Absent | Lack::Unreadable) => "unknown".to_owned(),
        },
    };
    let mut limits = format!(
        "disabled states {}; limits: machine {machine}, {}",
        all.disabled_count,
        counted(all.limited_count, "CPU")
    );
    if !app.limit_holders.is_empty() {
        let short = |holder: &String| {
            holder.trim_start_matches("idlewise ").trim_start_matches("set ").to_owned()
        };
        let holders: Vec<String> = app.limit_holders.iter().map(short).collect();
        limits += &format!(" by {}", holders.join(", "));
    }
    put(buffer, area, 0, 2, &limits, plain);
    put(buffer, area, 0, 3, &package_text(app), plain);

    let mut x = 0;
    let mut legend = |symbol: char, words: &str, style: Style| {
        put(buffer, area, x, 4, &symbol.to_string(), style);
        put(buffer, area, x + 2, 4, words, plain);
        x += words.chars().count() + 4;
    };
    legend('#', "running", style_of('#', app.has_colours));
    for (slot, name) in layout.slots().iter().enumerate() {
        legend(symbol(slot), name, style_of(symbol(slot), app.has_colours));
    }
    let open = if layout.has_no_states() { "idle" } else { "idle, in progress" };
    legend('.', open, plain);
}

fn package_text(app: &App) -> String {
    if app.packages.is_empty() {
        return app.package_lacks.first().cloned().unwrap_or_default();
    }
    let mut text = String::new();
    let mut place = "";
    for PackageLine { place: at, counter, residency_ratio, power_mw } in &app.packages {
        if at != place {
            text += if place.is_empty() { "" } else { "; " };
            text += &format!("{at}:");
            place = at;
        }
        match (residency_ratio, power_mw) {
            (Some(ratio), _) => text += &format!(" {counter} {} %", percent(Some(*ratio))),
            (None, Some(mw)) if counter == "power" => text += &format!(" {:.1} W", mw / 1e3),
            (None, Some(mw)) => text += &format!(" {counter} {:.1} W", mw / 1e3),
            (None, None) => {}
        }
    }
    text
}

/// The columns beside the bars, those first that a narrow screen keeps.
fn columns(app: &App) -> Vec<Figure> {
    let mut figures = Vec::new();
    if app.layout.has_no_states() {
        figures.push(Figure::new("running %", Some(SortKey::Running), |line| {
            percent(line.running_ratio)
        }));
        figures.push(Figure::new("limit", Some(SortKey::Limit), limit));
        return figures;
    }
    figures.push(Figure::new("wake-ups", Some(SortKey::Entries), |line| rate(line.entries_per_s)));
    figures
        .push(Figure::new("deep %", Some(SortKey::TooDeep), |line| percent(line.too_deep_ratio)));
    figures.push(Figure::new("shallow %", Some(SortKey::TooShallow), |line| {
        percent(line.too_shallow_ratio)
    }));
    figures
        .push(Figure::new("waiting %", Some(SortKey::Waiting), |line| percent(line.waiting_ratio)));
    figures.push(Figure::new("limit", Some(SortKey::Limit), limit));
    figures
        .push(Figure::new("running %", Some(SortKey::Running), |line| percent(line.running_ratio)));
    for (slot, name) in app.layout.slots().iter().enumerate() {
        figures.push(Figure::new(format!("{name} %"), None, move |line| {
            percent((line.condition == Condition::Usable).then(|| line.shares[slot]))
        }));
    }
    figures.push(Figure::new("refused", None, |line| rate(line.rejected_per_s)));
    figures.push(Figure::new("disabled", None, |line| line.disabled_count.to_string()));
    figures
}

fn limit(line: &Line) -> String {
    line.latency_limit_ns.map_or_else(|| "-".to_owned(), latency)
}

fn draw_lines(app: &mut App, area: Rect, buffer: &mut Buffer) {
    let all = app.lines();
    let plain = Style::default();
    let heading = plain.add_modifier(Modifier::REVERSED);
    let page = usize::from(area.height - HEAD_HEIGHT - 1);
    app.page = page;
    app.offset = app.offset.min(all.len().saturating_sub(page));
    let names = all.iter().map(|line| line.name.chars().count());
    let name_width = names.chain([4]).max().unwrap_or(4);
    let width = usize::from(area.width);
    // Of the optional columns, those that leave the bar enough room.
    let mut columns = columns(app);
    let mut used = name_width + 2;
    let mut kept = 0;
    for column in &columns {
        let with = used + column.width() + 2;
        let is_needed = kept < 5;
        if !is_needed && with + 3 * BAR_WIDTH_MIN > width {
            break;
        }
        (used, kept) = (with, kept + 1);
    }
    columns.truncate(kept);
    let bar_width = width.saturating_sub(used).clamp(BAR_WIDTH_MIN, BAR_WIDTH_MAX);

    put(buffer, area, 0, HEAD_HEIGHT - 1, &" ".repeat(width), heading);
    let what = if app.grouping == Grouping::Cpu { "CPU" } else { "CPUs" };
    let what = if app.sort == SortKey::Cpu { mark(what, app.is_reversed) } else { what.to_owned() };
    put(buffer, area, 0, HEAD_HEIGHT - 1, &format!("{what:>name_width$}"), heading);
    put(buffer, area, name_width + 2, HEAD_HEIGHT - 1, "time by state", heading);
    let mut x = name_width + 2 + bar_width;
    for column in &columns {
        let column_width = column.width() + 2;
        let is_sorted = column.key.is_some_and(|key| key == app.sort);
        let text =
            if is_sorted { mark(&column.heading, app.is_reversed) } else { column.heading.clone() };
        put(buffer, area, x, HEAD_HEIGHT - 1, &format!("{text:>column_width$}"), heading);
        x += column_width;
    }

    for (line, y) in all.iter().skip(app.offset).take(page).zip(HEAD_HEIGHT..) {
        put(buffer, area, 0, y, &format!("{:>name_width$}", line.name), plain);
        let mut x = name_width + 2;
        match line.condition {
            Condition::Offline => put(buffer, area, x, y, "offline", plain),
            Condition::Changed => put(buffer, area, x, y, "no figures yet", plain),
            Condition::Usable => {
                for (at, character) in bar(line, bar_width).chars().enumerate() {
                    let style = style_of(character, app.has_colours);
                    put(buffer, area, x + at, y, character.encode_utf8(&mut [0; 4]), style);
                }
            }
        }
        x += bar_width;
        for column in &columns {
            let column_width = column.width() + 2;
            put(buffer, area, x, y, &format!("{:>column_width$}", (column.text)(line)), plain);
            x += column_width;
        }
    }
    if all.is_empty() && app.figures.is_some() {
        put(buffer, area, 0, HEAD_HEIGHT, "no CPU matches the filter; / changes it", plain);
    }
}

/// A heading by which lines are sorted.
fn mark(heading: &str, is_reversed: bool) -> String {
    format!("{}{heading}", if is_reversed { '<' } else { '>' })
}

fn draw_foot(app: &App, area: Rect, buffer: &mut Buffer) {
    let y = area.height - 1;
    if let Some(typed) = &app.typed {
        let hint = match &app.message {
            Some(message) => format!("   {message}"),
            None => "   (CPUs such as 0-3,8, or `limited`; enter, escape)".to_owned(),
        };
        put(buffer, area, 0, y, &format!("filter: {typed}_{hint}"), Style::default());
        return;
    }
    if let Some(message) = &app.message {
        let style = Style::default().add_modifier(Modifier::BOLD);
        put(buffer, area, 0, y, message, style);
        return;
    }
    let filter = if app.filter.is_empty() { "all" } else { &app.filter };
    let text = format!(
        "q quit  ? help  p pause  s sort: {}  g group: {}  / filter: {filter}  r record",
        app.sort.as_str(),
        app.grouping.as_str()
    );
    put(buffer, area, 0, y, &text, Style::default());
}

fn draw_help(area: Rect, buffer: &mut Buffer) {
    let text_width = HELP.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = text_width + 4;
    let x = usize::from(area.width).saturating_sub(width) / 2;
    let height = HELP.len() + 2;
    let first = usize::from(area.height).saturating_sub(height) / 2;
    let edge = format!("+{}+", "-".repeat(width - 2));
    for row in 0..height {
        let Ok(y) = u16::try_from(first + row) else { return };
        let text = match row.checked_sub(1).and_then(|row| HELP.get(row)) {
            Some(line) => format!("| {line:<text_width$} |"),
            None => edge.clone(),
        };
        put(buffer, area, x, y, &text, Style::default());
    }
}

fn style_of(symbol: char, has_colours: bool) -> Style {
    let plain = Style::default();
    if !has_colours {
        return plain;
    }
    let colour = match (symbol, symbol.to_digit(36)) {
        ('#', _) => Color::Red,
        (_, Some(slot)) => COLOURS[slot as usize % COLOURS.len()],
        _ => return plain,
    };
    plain.fg(Color::Black).bg(colour)
}

/// A share as a percentage without its sign.
fn percent(ratio: Option<f64>) -> String {
    match ratio {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(ratio) if ratio < 0.000_5 => "<0.1".to_owned(),
        Some(ratio) => format!("{:.1}", 100.0 * ratio),
    }
}

fn rate(per_s: Option<f64>) -> String {
    match per_s {
        None => "-".to_owned(),
        Some(rate) if rate >= 1e6 => format!("{:.1}M", rate / 1e6),
        Some(rate) if rate >= 1e5 => format!("{:.0}k", rate / 1e3),
        Some(rate) if rate >= 1e4 => format!("{:.1}k", rate / 1e3),
        Some(rate) => format!("{rate:.0}"),
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
