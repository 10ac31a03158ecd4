//! A window above the rest: help, or the details of a tenant.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::gpus;
use super::palette::Palette;
use crate::columns::{fold, width};
use crate::tui::screen::Popup;

/// A reason that names many others is long; more than this hides the rest.
const MOST_LINES: usize = 3;

pub fn draw(frame: &mut Frame, screen: Rect, popup: &Popup, palette: &Palette) {
    let area = place(screen, popup);
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(format!(" {} ", popup.title)).border_style(palette.heading);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let gauges = u16::try_from(popup.gauges.len()).unwrap_or(u16::MAX);
    let [text_area, gauge_area] = Layout::vertical([Constraint::Min(0), Constraint::Length(gauges)]).areas(inside);
    frame.render_widget(Paragraph::new(lines(popup, text_area.width, palette)), text_area);
    let each = Layout::vertical(popup.gauges.iter().map(|_| Constraint::Length(1))).split(gauge_area);
    for ((name, gauge), area) in popup.gauges.iter().zip(each.iter()) {
        let style = if *name == "mem" { palette.memory } else { palette.core };
        gpus::gauge(frame, *area, name, gauge, style);
    }
}

fn lines<'a>(popup: &'a Popup, room: u16, palette: &Palette) -> Vec<Line<'a>> {
    let key_width = key_width(popup);
    let line = |(key, value): (&'a str, String)| {
        let gap = " ".repeat(key_width - width(key) + 2);
        Line::from(vec![Span::raw(" "), Span::styled(key, palette.heading), Span::raw(gap), Span::raw(value)])
    };
    rows(popup, room).into_iter().map(line).collect()
}

/// Its lines, those that are too long folded: below the first there is no key.
fn rows(popup: &Popup, room: u16) -> Vec<(&str, String)> {
    let room = usize::from(room).saturating_sub(key_width(popup) + 3);
    let rows = popup.lines.iter().flat_map(|(key, value)| {
        let keys = std::iter::once(key.as_str()).chain(std::iter::repeat(""));
        keys.zip(fold(value, room, MOST_LINES))
    });
    rows.collect()
}

fn key_width(popup: &Popup) -> usize {
    popup.lines.iter().map(|(key, _)| width(key)).max().unwrap_or(0)
}

/// In the middle, as large as it needs to be and there is room for.
fn place(screen: Rect, popup: &Popup) -> Rect {
    let wanted = if popup.gauges.is_empty() { 62 } else { 100 };
    let width = wanted.min(screen.width.saturating_sub(2));
    let lines = rows(popup, width.saturating_sub(2)).len();
    let height = u16::try_from(lines + popup.gauges.len() + 2).unwrap_or(u16::MAX).min(screen.height);
    Rect { x: screen.x + (screen.width - width) / 2, y: screen.y + (screen.height - height) / 2, width, height }
}
