//! Tables on standard output: no lines, columns apart by two spaces, numbers on the right.

use berth_model::TaskRow;
use berth_model::fields::elapsed;
use berth_model::snapshot::EndedTask;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::columns::{Columns, GAP, Narrow};

/// How much may be left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Lines are cut to this; `None` leaves them as long as they are.
    pub width: Option<usize>,
    /// Nothing is shortened, whatever the width.
    pub full: bool,
    /// With reasons of holds; lines may get longer than the width.
    pub wide: bool,
}

pub fn of_tasks<'a>(tasks: impl IntoIterator<Item = &'a TaskRow>, style: Style) -> String {
    let columns = Columns::of_tasks(tasks, style.full, style.wide);
    render(match style.width {
        Some(width) if !style.full => columns.fit(width, Narrow::KeepAll),
        _ => columns,
    })
}

/// `zone`: in which times of day are shown.
pub fn of_ended<'a>(ended: impl IntoIterator<Item = &'a EndedTask>, zone: &TimeZone) -> String {
    let rows = ended.into_iter().map(|task| {
        let gpus: Vec<String> = task.gpus.iter().map(ToString::to_string).collect();
        vec![
            gpus.join(","),
            task.container_name.clone(),
            task.owner.clone().unwrap_or_else(|| "-".to_owned()),
            task.peak_memory_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
            time(task.started_at, zone),
            time(task.ended_at, zone),
            elapsed(task.seconds),
        ]
    });
    let headings = ["GPU", "TENANT", "OWNER", "PEAK MEMORY", "STARTED", "ENDED", "LASTED"];
    render(Columns::new(&headings, &[true, false, false, true, false, false, true], rows.collect()))
}

pub fn time(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

pub fn render(columns: Columns) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(&columns.headings).add_rows(&columns.rows);
    for (column, numeric) in table.column_iter_mut().zip(&columns.numeric) {
        let gap = u16::try_from(GAP).unwrap_or(u16::MAX);
        column.set_padding((0, gap));
        column.set_cell_alignment(if *numeric { CellAlignment::Right } else { CellAlignment::Left });
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{busy, contended, ended, row};

    #[test]
    fn a_busy_host() {
        insta::assert_snapshot!(of_tasks(&busy().tasks, Style::default()));
    }

    #[test]
    fn a_host_where_some_wait_and_one_is_exempt() {
        insta::assert_snapshot!(of_tasks(&contended().tasks, Style { wide: true, ..Style::default() }));
    }

    #[test]
    fn a_busy_host_in_ninety_columns() {
        let table = of_tasks(&busy().tasks, Style { width: Some(90), ..Style::default() });
        assert!(table.lines().all(|line| crate::columns::width(line) <= 90), "{table}");
        insta::assert_snapshot!(table);
    }

    #[test]
    fn nothing_is_shortened_when_told_so_even_if_it_does_not_fit() {
        let long = row("a-very-long-name-that-a-person-gave-to-a-container-without-thinking-of-tables");
        let table = of_tasks([&long], Style { width: Some(80), full: true, wide: false });
        assert!(table.contains(&long.container_name) && table.contains(&long.container_id.unwrap().0), "{table}");
    }

    #[test]
    fn nobody_on_the_gpus_is_a_heading_alone() {
        assert_eq!(of_tasks([], Style::default()).lines().count(), 1);
    }

    #[test]
    fn ended_tasks() {
        insta::assert_snapshot!(of_ended(&ended(), &TimeZone::UTC));
    }
}
