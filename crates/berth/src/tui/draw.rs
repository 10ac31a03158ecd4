//! A [`Screen`] on the terminal: title, GPUs, tenants, keys; what is open lies above.

mod gpus;
mod palette;
mod popup;
mod queue;
mod tenants;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::screen::{Footer, Screen};
use crate::columns::{cut, width};
pub use palette::Palette;

pub fn screen(frame: &mut Frame, screen: &Screen, palette: &Palette) {
    let area = frame.area();
    if let Some(text) = &screen.too_narrow {
        return frame.render_widget(Paragraph::new(text.as_str()).wrap(Wrap { trim: true }), area);
    }
    let gpus_height = gpus::height(screen.gpus.len(), area.height);
    let queue_height = queue::height(screen.queue.as_ref(), area.height);
    let kernels_height = queue::height(screen.kernels.as_ref(), area.height);
    let [head, gpus_area, queue_area, kernels_area, table_area, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(gpus_height),
        Constraint::Length(queue_height),
        Constraint::Length(kernels_height),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(area);
    self::head(frame, head, screen, palette);
    gpus::draw(frame, gpus_area, &screen.gpus, palette);
    if let Some(queue) = &screen.queue {
        queue::draw(frame, queue_area, queue, palette.held, palette);
    }
    if let Some(kernels) = &screen.kernels {
        queue::draw(frame, kernels_area, kernels, Style::new(), palette);
    }
    tenants::draw(frame, table_area, &screen.table, palette);
    self::foot(frame, foot, &screen.footer, palette);
    if let Some(popup) = &screen.popup {
        popup::draw(frame, area, popup, palette);
    }
}

fn head(frame: &mut Frame, area: Rect, screen: &Screen, palette: &Palette) {
    let clock_width = u16::try_from(screen.clock.len()).unwrap_or(u16::MAX).saturating_add(1);
    let [left, right] = Layout::horizontal([Constraint::Min(0), Constraint::Length(clock_width)]).areas(area);
    let style = if screen.status.is_alarm { palette.alarm } else { palette.faint };
    let room = usize::from(left.width).saturating_sub(width(&screen.title) + 2);
    let line = Line::from(vec![
        Span::styled(&screen.title, palette.heading),
        Span::raw("  "),
        Span::styled(cut(&screen.status.text, room), style),
    ]);
    frame.render_widget(line, left);
    frame.render_widget(Paragraph::new(screen.clock.as_str()).alignment(Alignment::Right), right);
}

fn foot(frame: &mut Frame, area: Rect, footer: &Footer, palette: &Palette) {
    match footer {
        Footer::Keys(keys) => frame.render_widget(Line::styled(keys, palette.faint), area),
        Footer::Typing(filter) => {
            let line = Line::from(vec![
                Span::styled("filter: ", palette.heading),
                Span::raw(filter),
                Span::styled("▏", palette.heading),
                Span::styled("  Enter keeps it, Esc clears it", palette.faint),
            ]);
            frame.render_widget(line, area);
        }
    }
}
