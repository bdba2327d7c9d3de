//! What all our plots share: how an SVG is made, and its colours.

#![expect(missing_docs, reason = "a colour's name says what it is")]

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

/// What is drawn on.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// What drawing comes to.
pub type Drawn = Result<(), Box<dyn Error>>;

/// Colours that also people with colour blindness can tell apart (Okabe and Ito, 2008), without black.
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
pub const ORANGE: RGBColor = RGBColor(213, 94, 0);
pub const GREEN: RGBColor = RGBColor(0, 158, 115);
pub const PURPLE: RGBColor = RGBColor(204, 121, 167);
pub const YELLOW: RGBColor = RGBColor(230, 159, 0);
pub const SKY: RGBColor = RGBColor(86, 180, 233);
pub const GREY: RGBColor = RGBColor(120, 120, 120);

/// The SVG that `draw` draws on white.
pub fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = area.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&area));
    drawn.and_then(|()| Ok(area.present()?)).expect("a string takes all that is drawn");
    drop(area);
    svg
}
