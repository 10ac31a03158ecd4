//! A small writer of line charts: axes with round numbers, a grid, a legend, units. No style sheet, no script, no fonts of its own.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
/// Colours that people who see colours differently can tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = ["#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// Marks are told apart without colours too.
/// Their number and that of the colours have no factor in common, so no two curves share both.
const DASHES: [&str; 5] = ["none", "6 3", "2 3", "8 3 2 3", "12 4"];
const MOST_TICKS: f64 = 6.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub series: Vec<Series>,
    /// The y axis begins here, or lower if a value lies lower.
    pub y_from: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub name: String,
    /// Colour and dashes, so that what is the same in several charts looks the same.
    pub style: usize,
    pub points: Vec<(f64, f64)>,
}

/// Maps values to the page.
struct Scale {
    x: (f64, f64),
    y: (f64, f64),
}

impl Chart {
    /// An SVG document; without points, one that says so.
    pub fn to_svg(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13">"#
        )?;
        writeln!(out, r##"<rect width="100%" height="100%" fill="#ffffff"/>"##)?;
        text(out, (LEFT, 28.0), "start", &format!("<tspan font-size=\"16\">{}</tspan>", escaped(&self.title)))?;
        match self.scale() {
            Some(scale) => {
                self.write_axes(out, &scale)?;
                for (index, series) in self.series.iter().enumerate() {
                    write_series(out, &scale, series, index)?;
                }
            }
            None => text(out, (LEFT, HEIGHT / 2.0), "start", "nothing was measured")?,
        }
        writeln!(out, "</svg>")
    }

    fn scale(&self) -> Option<Scale> {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let xs = (points().map(|(x, _)| x).min_by(f64::total_cmp)?, points().map(|(x, _)| x).max_by(f64::total_cmp)?);
        let (least, most) =
            points().fold((self.y_from, self.y_from), |(least, most), (_, y)| (least.min(y), most.max(y)));
        let step = round_step(most - least);
        let from = (least / step).floor() * step;
        let to = from + ((most - from) / step - 1e-9).ceil().max(1.0) * step;
        let x = if xs.1 > xs.0 { xs } else { (xs.0 - 1.0, xs.0 + 1.0) };
        Some(Scale { x, y: (from, to) })
    }

    fn write_axes(&self, out: &mut String, scale: &Scale) -> std::fmt::Result {
        let (left, right, bottom) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
        let step = round_step(scale.y.1 - scale.y.0);
        for value in ticks(scale.y, step) {
            let y = scale.y_at(value);
            writeln!(out, r##"<line x1="{left}" y1="{y:.1}" x2="{right}" y2="{y:.1}" stroke="#dddddd"/>"##)?;
            text(out, (left - 8.0, y + 4.0), "end", &number(value, step))?;
        }
        let span = scale.x.1 - scale.x.0;
        let step = if span <= 10.0 { 1.0 } else { round_step(span) };
        for value in ticks((scale.x.0.ceil(), scale.x.1), step) {
            let x = scale.x_at(value);
            writeln!(
                out,
                r##"<line x1="{x:.1}" y1="{bottom}" x2="{x:.1}" y2="{:.1}" stroke="#000000"/>"##,
                bottom + 5.0
            )?;
            text(out, (x, bottom + 20.0), "middle", &number(value, step))?;
        }
        writeln!(out, r##"<path d="M{left} {TOP} V{bottom} H{right}" fill="none" stroke="#000000"/>"##)?;
        text(out, (left.midpoint(right), HEIGHT - 16.0), "middle", &escaped(&self.x_label))?;
        let middle = TOP.midpoint(bottom);
        writeln!(
            out,
            r#"<text transform="translate(20 {middle}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escaped(&self.y_label)
        )
    }
}

impl Scale {
    fn x_at(&self, value: f64) -> f64 {
        LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y_at(&self, value: f64) -> f64 {
        let part = (value - self.y.0) / (self.y.1 - self.y.0);
        HEIGHT - BOTTOM - part.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

fn write_series(out: &mut String, scale: &Scale, series: &Series, index: usize) -> std::fmt::Result {
    let (colour, dashes) = (COLOURS[series.style % COLOURS.len()], DASHES[series.style % DASHES.len()]);
    let places: Vec<(f64, f64)> = series.points.iter().map(|(x, y)| (scale.x_at(*x), scale.y_at(*y))).collect();
    let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let style = format!(r#"fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}""#);
    writeln!(out, r#"<polyline points="{}" {style}/>"#, line.join(" "))?;
    for (x, y) in &places {
        writeln!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#)?;
    }
    let (x, y) = (WIDTH - RIGHT + 16.0, TOP + 10.0 + 22.0 * index as f64);
    writeln!(out, r#"<line x1="{x}" y1="{y}" x2="{}" y2="{y}" {style}/>"#, x + 28.0)?;
    text(out, (x + 36.0, y + 4.0), "start", &escaped(&series.name))
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, content: &str) -> std::fmt::Result {
    writeln!(out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{content}</text>"#)
}

/// 1, 2 or 5 times a power of ten, so that a span has at most a handful of them.
fn round_step(span: f64) -> f64 {
    let raw = (span / MOST_TICKS).max(1e-6);
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= raw).unwrap_or(raw)
}

fn ticks((from, to): (f64, f64), step: f64) -> impl Iterator<Item = f64> {
    (0u32..).map(move |index| from + f64::from(index) * step).take_while(move |value| *value <= to + step * 1e-6)
}

fn number(value: f64, step: f64) -> String {
    let decimals = if step >= 1.0 {
        0
    } else if step >= 0.1 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)]) -> Chart {
        let series = vec![Series { name: "a < b".into(), style: 0, points: points.to_vec() }];
        Chart { title: "T & U".into(), x_label: "tenants".into(), y_label: "seconds".into(), series, y_from: 0.0 }
    }

    #[test]
    fn steps_are_round_and_few() {
        for (span, step) in [(10.0, 2.0), (118.0, 20.0), (0.35, 0.1), (6.0, 1.0), (19.0, 5.0)] {
            assert!((round_step(span) - step).abs() < 1e-9, "{span}: {}", round_step(span));
        }
    }

    #[test]
    fn every_point_is_on_the_page_and_higher_values_higher() {
        let scale = chart(&[(1.0, 3.0), (10.0, 118.0)]).scale().unwrap();
        assert_eq!((scale.x_at(1.0), scale.x_at(10.0)), (LEFT, WIDTH - RIGHT));
        assert!(scale.y_at(118.0) >= TOP && scale.y_at(118.0) < scale.y_at(3.0));
        assert_eq!(scale.y_at(0.0), HEIGHT - BOTTOM);
    }

    #[test]
    fn what_lies_below_the_beginning_of_the_axis_is_shown_too() {
        let scale = chart(&[(1.0, -3.2), (2.0, 1.0)]).scale().unwrap();
        assert!(scale.y.0 <= -3.2 && scale.y.0 > -5.0, "{:?}", scale.y);
        assert!(scale.y_at(-3.2) <= HEIGHT - BOTTOM);
    }

    #[test]
    fn names_cannot_break_the_document() {
        let svg = chart(&[(1.0, 1.0)]).to_svg();
        assert!(svg.contains("T &amp; U") && svg.contains("a &lt; b"), "{svg}");
        assert!(svg.contains(">tenants</text>") && svg.contains(">seconds</text>"));
    }

    #[test]
    fn no_points_is_said() {
        assert!(chart(&[]).to_svg().contains("nothing was measured"));
    }
}
