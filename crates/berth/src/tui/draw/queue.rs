//! Who waits for whom, and who goes before whom inside a GPU: a line each while there is room.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph};

use super::palette::Palette;
use crate::columns::cut;
use crate::tui::screen::QueuePanel;

/// Lines of a screen `height` high that the queue gets, its title included: never more than a quarter.
pub fn height(queue: Option<&QueuePanel>, height: u16) -> u16 {
    let wanted = queue.map_or(0, |queue| queue.lines.len() + 1);
    u16::try_from(wanted).unwrap_or(u16::MAX).min(height / 4)
}

pub fn draw(frame: &mut Frame, area: Rect, queue: &QueuePanel, style: Style, palette: &Palette) {
    let block = Block::new().borders(Borders::TOP).title(format!(" {} ", queue.title)).border_style(palette.faint);
    let (room, width) = (usize::from(area.height.saturating_sub(1)), usize::from(area.width));
    let shown = if queue.lines.len() > room { room.saturating_sub(1) } else { room };
    let mut lines: Vec<Line> =
        queue.lines.iter().take(shown).map(|line| Line::styled(cut(line, width), style)).collect();
    if queue.lines.len() > shown {
        lines.push(Line::styled(format!("and {} more", queue.lines.len() - shown), palette.faint));
    }
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
