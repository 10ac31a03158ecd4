//! The GPUs: three lines each while there is room, else one.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Sparkline, SparklineBar};

use super::palette::Palette;
use crate::columns::{cut, width};
use crate::tui::screen::{Gauge, GpuPanel};

const FULL: u16 = 3;
/// `140 GiB / 140 GiB` fits.
const LABEL: u16 = 19;

/// Before the numbers, if a GPU has but one line: `GPU 10…` at least.
const HEADING: usize = 40;
const LEAST_HEADING: usize = 7;
/// `processes cannot be listed…` at least.
const LEAST_BLIND: usize = 27;

/// Lines the GPUs get of a screen `height` high: never more than half.
pub fn height(gpus: usize, height: u16) -> u16 {
    let (gpus, room) = (u16::try_from(gpus).unwrap_or(u16::MAX), height / 2);
    let full = gpus.saturating_mul(FULL);
    if full <= room { full } else { gpus.min(room) }
}

pub fn draw(frame: &mut Frame, area: Rect, gpus: &[GpuPanel], palette: &Palette) {
    let lines = usize::from(area.height);
    if gpus.len() * usize::from(FULL) <= lines {
        let each = Layout::vertical(gpus.iter().map(|_| Constraint::Length(FULL))).split(area);
        gpus.iter().zip(each.iter()).for_each(|(gpu, area)| full(frame, *area, gpu, palette));
        return;
    }
    let each = Layout::vertical((0..lines).map(|_| Constraint::Length(1))).split(area);
    let shown = if gpus.len() > lines { lines.saturating_sub(1) } else { lines };
    gpus.iter().take(shown).zip(each.iter()).for_each(|(gpu, area)| short(frame, *area, gpu, palette));
    if let (true, Some(last)) = (gpus.len() > shown, each.last()) {
        let more = format!("and {} more GPUs", gpus.len() - shown);
        frame.render_widget(Line::styled(more, palette.faint), *last);
    }
}

fn full(frame: &mut Frame, area: Rect, gpu: &GpuPanel, palette: &Palette) {
    let [head, memory, core] = Layout::vertical([Constraint::Length(1); 3]).areas(area);
    frame.render_widget(headline(gpu, usize::from(head.width), palette), head);
    match &gpu.lost {
        Some(reason) => {
            let text = cut(&format!("  lost: {reason}"), usize::from(area.width));
            frame.render_widget(Line::styled(text, palette.alarm), memory);
        }
        None => {
            gauge(frame, memory, "mem", &gpu.memory, palette.memory);
            gauge(frame, core, "core", &gpu.core, palette.core);
        }
    }
}

/// What cannot be seen stands beside the name, which is cut before it: memory and use are known all the same.
fn headline(gpu: &GpuPanel, room: usize, palette: &Palette) -> Line<'static> {
    let Some(blind) = &gpu.blind else { return Line::styled(cut(&gpu.heading, room), palette.heading) };
    let heading = cut(&gpu.heading, room.saturating_sub(LEAST_BLIND + 2));
    let blind = cut(blind, room.saturating_sub(width(&heading) + 2));
    Line::from(vec![Span::styled(heading, palette.heading), Span::raw("  "), Span::styled(blind, palette.alarm)])
}

/// `  mem  █████░░░░░  20.1 GiB / 140 GiB  ▁▂▃▅▇`
pub fn gauge(frame: &mut Frame, area: Rect, name: &str, gauge: &Gauge, style: Style) {
    let [name_area, bar_area, label_area, history_area] = Layout::horizontal([
        Constraint::Length(7),
        Constraint::Fill(1),
        Constraint::Length(LABEL + 2),
        Constraint::Fill(1),
    ])
    .areas(area);
    frame.render_widget(Line::raw(format!("  {name:<4}")), name_area);
    frame.render_widget(bar(gauge.percent, bar_area.width, style), bar_area);
    frame.render_widget(Line::raw(format!("  {}", gauge.label)), label_area);
    let room = usize::from(history_area.width);
    let newest = gauge.history.iter().skip(gauge.history.len().saturating_sub(room));
    let bars = newest.map(|percent| SparklineBar::from(percent.map(u64::from)));
    frame.render_widget(Sparkline::default().data(bars.collect::<Vec<_>>()).max(100).style(style), history_area);
}

fn bar(percent: Option<u8>, width: u16, style: Style) -> Line<'static> {
    let width = usize::from(width);
    let Some(percent) = percent else { return Line::raw("·".repeat(width)) };
    let filled = (width * usize::from(percent) + 50) / 100;
    Line::from(vec![Span::styled("█".repeat(filled), style), Span::raw("░".repeat(width.saturating_sub(filled)))])
}

fn short(frame: &mut Frame, area: Rect, gpu: &GpuPanel, palette: &Palette) {
    let numbers = match (&gpu.lost, &gpu.blind) {
        (Some(reason), _) => Span::styled(format!("lost: {reason}"), palette.alarm),
        (None, Some(blind)) => Span::styled(blind.clone(), palette.alarm),
        (None, None) => Span::raw(format!("mem {}  core {}", gpu.memory.label, gpu.core.label)),
    };
    // A name can be cut, numbers cannot.
    let room = usize::from(area.width).saturating_sub(numbers.width() + 2).clamp(LEAST_HEADING, HEADING);
    let heading = format!("{:<room$}  ", cut(&gpu.heading, room));
    let line = Line::from(vec![Span::styled(heading, palette.heading), numbers]);
    frame.render_widget(line, area);
}
