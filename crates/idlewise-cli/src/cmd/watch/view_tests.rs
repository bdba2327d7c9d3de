//! The screen, as text: at several sizes, with the keys, and as pictures in docs/watch.
//! `IDLEWISE_GOLDEN=rewrite` rewrites both (`make golden`).

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use idlewise_report::watch::{
    CpuPlace, CpuReading, Figures, Layout, Reading, StateInfo, StateReading,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

/// A server with 224 CPUs on two packages: exit latencies and target residencies as intel_idle declares them for
/// Sapphire Rapids. What the CPUs did is made up.
fn server() -> App {
    let state = |name: &str, exit_latency_us: u64, target_residency_us: u64| StateInfo {
        name: name.to_owned(),
        exit_latency_ns: exit_latency_us * 1_000,
        target_residency_ns: target_residency_us * 1_000,
    };
    let states =
        vec![state("POLL", 0, 0), state("C1", 1, 1), state("C1E", 2, 4), state("C6", 290, 800)];
    let place = |cpu: u16| CpuPlace {
        cpu,
        package: Some(u64::from(cpu % 112 / 56)),
        core: None,
        cache: Some(cpu % 112 / 56 * 56),
        states: states.clone(),
    };
    let mut layout = Layout::new((0..224).map(place).collect());
    layout.driver = Some("intel_idle".to_owned());
    layout.governor = Some("menu".to_owned());
    let before = Reading {
        cpus: vec![CpuReading { is_readable: true, idle_ns: Some(0), limit_ns: None }; 224],
        states: vec![
            StateReading {
                too_deep_count: Some(0),
                too_shallow_count: Some(0),
                rejected_count: Some(0),
                ..StateReading::default()
            };
            224 * 4
        ],
        energy_uj: vec![("package-0".to_owned(), 0.0), ("package-1".to_owned(), 0.0)],
        ..Reading::default()
    };
    let mut after = before.clone();
    after.at_ns = 1_000_000_000;
    after.energy_uj = vec![("package-0".to_owned(), 213.4e6), ("package-1".to_owned(), 187.9e6)];
    for cpu in 0..224_u64 {
        // Entries, microseconds, too deep, too shallow, of each state: three kinds of CPUs.
        let counted: [[u64; 4]; 4] = match cpu % 8 {
            0 | 1 => [
                [3, 9, 0, 2],
                [1_400 + 3 * cpu, 21_000, 0, 310],
                [900, 160_000, 70, 120],
                [850, 310_000, 264, 0],
            ],
            2 => [[0, 0, 0, 0], [40, 1_200, 0, 9], [25, 24_000, 1, 12], [61 + cpu, 960_000, 3, 0]],
            _ => [[0, 0, 0, 0], [2, 15, 0, 0], [1, 30, 0, 1], [9 + cpu % 5, 996_000, 0, 0]],
        };
        for (state, counted) in after.states[cpu as usize * 4..].iter_mut().zip(counted) {
            state.entry_count = counted[0];
            state.residency_ns = counted[1] * 1_000;
            state.too_deep_count = Some(counted[2]);
            state.too_shallow_count = Some(counted[3]);
        }
    }
    for cpu in 4..8 {
        after.cpus[cpu].limit_ns = Some(10_000);
        after.states[cpu * 4 + 3].is_disabled = cpu == 7;
    }
    // CPU 5 sleeps on; CPU 6 went offline; CPU 7 came online.
    let sleeping = &mut after.states[5 * 4..6 * 4];
    sleeping.iter_mut().for_each(|state| *state = StateReading::default());
    after.cpus[5].idle_ns = Some(1_000_000_000);
    after.cpus[6].is_readable = false;
    let mut before = before;
    before.cpus[7].is_readable = false;
    let mut figures = Figures::default();
    figures.update(&layout, &before, &after);
    let mut app = App::new(layout, 1.0);
    let share = |place: &str, counter: &str, ratio| PackageLine {
        place: place.to_owned(),
        counter: counter.to_owned(),
        residency_ratio: Some(ratio),
        power_mw: None,
    };
    app.packages = vec![
        share("package 0", "C2", 0.011),
        share("package 0", "C6", 0.0),
        share("package 1", "C2", 0.034),
        share("package 1", "C6", 0.002),
    ];
    app.packages.extend(figures.power_mw.iter().map(|(place, mw)| PackageLine {
        place: place.replace('-', " "),
        counter: "power".to_owned(),
        residency_ratio: None,
        power_mw: Some(*mw),
    }));
    app.limit_holders = vec!["idlewise set quiet (4711) latency=10us@4-7".to_owned()];
    app.packages.sort_by(|one, other| one.place.cmp(&other.place));
    app.figures = Some(figures);
    app
}

fn drawn(app: &mut App, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn rows(buffer: &Buffer) -> Vec<String> {
    let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| row(y).trim_end().to_owned()).collect()
}

fn text(app: &mut App, width: u16, height: u16) -> String {
    rows(&drawn(app, width, height)).join("\n") + "\n"
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
        app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

fn assert_golden(path: &Path, found: &str) {
    if std::env::var("IDLEWISE_GOLDEN").is_ok_and(|value| value == "rewrite") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, found).unwrap();
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert!(expected == found, "{}: `make golden` rewrites it\n{found}", path.display());
}

/// A screen as a picture: text in cells of 8 by 17 units, in the colours of the terminal.
fn picture(buffer: &Buffer) -> String {
    const CELL: (u32, u32) = (8, 17);
    let css = |colour: Color| match colour {
        Color::Black => "#101418",
        Color::Red => "#e06c5f",
        Color::Green => "#7fb069",
        Color::Yellow => "#e2c044",
        Color::Blue => "#5b8fd6",
        Color::Magenta => "#b678c4",
        Color::Cyan => "#4fb8b8",
        Color::Gray => "#a0a8b0",
        _ => "#d8dee4",
    };
    let (width, height) = (u32::from(buffer.area.width), u32::from(buffer.area.height));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"monospace\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#101418\"/>\n",
        width * CELL.0 + 16,
        height * CELL.1 + 16
    );
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            // A run of cells that look alike.
            let style = buffer[(x, y)].style();
            let mut run = String::new();
            let first = x;
            while x < buffer.area.width && buffer[(x, y)].style() == style {
                run += buffer[(x, y)].symbol();
                x += 1;
            }
            let is_reversed = style.add_modifier.contains(Modifier::REVERSED);
            let ground = style.bg.filter(|ground| *ground != Color::Reset);
            let (ink, ground) = match (is_reversed, ground) {
                (true, _) => ("#101418", Some("#d8dee4")),
                (false, Some(ground)) => (css(Color::Black), Some(css(ground))),
                (false, None) => ("#d8dee4", None),
            };
            let left = 8 + u32::from(first) * CELL.0;
            let top = 8 + u32::from(y) * CELL.1;
            let run_width = u32::from(x - first) * CELL.0;
            if let Some(ground) = ground {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left}\" y=\"{top}\" width=\"{run_width}\" height=\"{}\" fill=\"{ground}\"/>",
                    CELL.1
                );
            }
            if run.trim().is_empty() {
                continue;
            }
            let weight = if style.add_modifier.contains(Modifier::BOLD) {
                " font-weight=\"bold\""
            } else {
                ""
            };
            let shown = run.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let _ = writeln!(
                svg,
                "<text x=\"{left}\" y=\"{}\" textLength=\"{run_width}\" xml:space=\"preserve\" fill=\"{ink}\"{weight}>{shown}</text>",
                top + 13
            );
        }
    }
    svg + "</svg>\n"
}

#[test]
fn screens_of_a_large_server_are_as_expected() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/watch");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (width, height) in [(80, 24), (200, 40)] {
        let mut app = server();
        app.has_colours = true;
        let buffer = drawn(&mut app, width, height);
        assert_golden(&docs.join(format!("{width}.svg")), &picture(&buffer));
        assert_golden(
            &golden.join(format!("watch-{width}.txt")),
            &(rows(&buffer).join("\n") + "\n"),
        );
        app.has_colours = false;
        let plain = drawn(&mut app, width, height);
        assert_eq!(rows(&plain), rows(&buffer), "colours carry no meaning");
        assert!(plain.content.iter().all(|cell| matches!(cell.bg, Color::Reset)));
    }
    let mut app = server();
    press(&mut app, "gg");
    assert_golden(&golden.join("watch-packages-80.txt"), &text(&mut app, 80, 14));
    press(&mut app, "?");
    assert_golden(&golden.join("watch-help-80.txt"), &text(&mut app, 80, 24));
}

#[test]
fn nothing_is_wider_or_higher_than_the_terminal_and_nothing_panics() {
    for (width, height) in
        [(1, 1), (20, 5), (59, 24), (60, 10), (80, 24), (81, 25), (132, 50), (400, 300)]
    {
        for keys in
            ["", "g", "gg", "ggg", "?", "/", "sssss", "S", "/limited\n", "/200-300\n", "/99\n/x\n"]
        {
            let mut app = server();
            press(&mut app, keys);
            let text = text(&mut app, width, height);
            assert_eq!(text.lines().count(), usize::from(height));
            if width < WIDTH_MIN || height < HEIGHT_MIN {
                assert!(text.starts_with(&"too small: "[..usize::from(width.min(11))]), "{text}");
            }
        }
    }
}

#[test]
fn moving_stops_at_both_ends() {
    let mut app = server();
    let first_cpu =
        |app: &mut App| rows(&drawn(app, 80, 24))[6].trim().split(' ').next().unwrap().to_owned();
    assert_eq!(first_cpu(&mut app), "0");
    let key = |app: &mut App, code| app.key(KeyEvent::new(code, KeyModifiers::NONE));
    key(&mut app, KeyCode::Up);
    assert_eq!(first_cpu(&mut app), "0");
    key(&mut app, KeyCode::Down);
    assert_eq!(first_cpu(&mut app), "1");
    key(&mut app, KeyCode::PageDown);
    assert_eq!(first_cpu(&mut app), "18");
    key(&mut app, KeyCode::End);
    assert_eq!(first_cpu(&mut app), "207");
    key(&mut app, KeyCode::Down);
    assert_eq!(first_cpu(&mut app), "207");
    key(&mut app, KeyCode::Home);
    assert_eq!(first_cpu(&mut app), "0");
    press(&mut app, "s");
    assert_eq!(first_cpu(&mut app), "0", "it runs most");
    press(&mut app, "/limited\n");
    let shown = text(&mut app, 80, 24);
    assert!(shown.contains("10us") && !shown.contains("\n 100"), "{shown}");
}

#[test]
fn a_machine_without_driver_shows_its_idle_time() {
    let place = |cpu| CpuPlace { cpu, ..CpuPlace::default() };
    let layout = Layout::new((0..2).map(place).collect());
    let cpu = |idle_ns| CpuReading { is_readable: true, idle_ns: Some(idle_ns), limit_ns: None };
    let before = Reading { cpus: vec![cpu(0); 2], ..Reading::default() };
    let after = Reading {
        at_ns: 1_000_000_000,
        cpus: vec![cpu(750_000_000), cpu(0)],
        ..Reading::default()
    };
    let mut app = App::new(layout.clone(), 1.0);
    let mut figures = Figures::default();
    figures.update(&layout, &before, &after);
    assert!(text(&mut app, 80, 12).contains("for the first time"));
    app.figures = Some(figures);
    let shown = text(&mut app, 80, 12);
    for part in ["no cpuidle driver, 2 CPUs", "running 62.5 %", "/proc/stat", ". idle", "   25.0"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn foreign_names_do_not_leave_their_cells() {
    let state = |name: &str| StateInfo {
        name: name.to_owned(),
        exit_latency_ns: 1,
        target_residency_ns: 1,
    };
    let states = vec![state("\u{1b}[2J\u{7}"), state(&"long".repeat(40))];
    let layout = Layout::new(vec![CpuPlace { cpu: 0, states, ..CpuPlace::default() }]);
    let mut app = App::new(layout, 1.0);
    let mut figures = Figures::default();
    let reading = |at_ns| Reading {
        at_ns,
        cpus: vec![CpuReading { is_readable: true, ..CpuReading::default() }],
        states: vec![StateReading::default(); 2],
        ..Reading::default()
    };
    figures.update(&app.layout, &reading(0), &reading(1));
    app.figures = Some(figures);
    let shown = text(&mut app, 100, 12);
    assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
}
