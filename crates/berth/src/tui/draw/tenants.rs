//! The table of tenants, scrolled so that the selected row is in view.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::text::Text;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};

use super::palette::Palette;
use crate::columns::GAP;
use crate::tui::screen::TablePanel;

pub fn draw(frame: &mut Frame, area: Rect, panel: &TablePanel, palette: &Palette) {
    let block = Block::new().borders(Borders::TOP).title(format!(" {} ", panel.title)).border_style(palette.faint);
    if let Some(nothing) = &panel.nothing {
        let text = Paragraph::new(format!("\n{nothing}")).alignment(Alignment::Center);
        frame.render_widget(text.style(palette.faint).block(block), area);
        return;
    }
    let columns = &panel.columns;
    let cells = |cells: &[String]| -> Vec<Cell<'static>> {
        let aligned = cells.iter().zip(&columns.numeric).map(|(text, numeric)| {
            Cell::from(Text::from(text.clone()).alignment(if *numeric { Alignment::Right } else { Alignment::Left }))
        });
        aligned.collect()
    };
    let rows = columns.rows.iter().zip(&columns.risks).zip(&panel.looks).map(|((row, risk), look)| {
        let mut cells = cells(row);
        if let Some((cell, risk)) = columns.float().and_then(|column| cells.get_mut(column)).zip(*risk) {
            *cell = std::mem::take(cell).style(palette.risk(risk));
        }
        Row::new(cells).style(palette.of(*look))
    });
    let widths = columns.widths().into_iter().map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    let table = Table::new(rows, widths)
        .header(Row::new(cells(&columns.headings)).style(palette.heading))
        .column_spacing(u16::try_from(GAP).unwrap_or(u16::MAX))
        .row_highlight_style(palette.selected)
        .highlight_symbol("▶ ")
        .block(block);
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(panel.selected));
}
