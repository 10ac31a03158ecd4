//! Tables on standard output: no lines, columns apart by two spaces, numbers on the right.

use berth_model::TaskRow;
use berth_model::deadline::Risk;
use berth_model::fields::{elapsed, signed};
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
    /// With reasons of holds and where deadlines come from; lines may get longer than the width.
    pub wide: bool,
    /// What is left of deadlines is coloured by the risk of a miss.
    pub colours: bool,
}

pub fn of_tasks<'a>(tasks: impl IntoIterator<Item = &'a TaskRow>, style: Style) -> String {
    let columns = Columns::of_tasks(tasks, style.full, style.wide);
    let narrow = if style.wide { Narrow::KeepAll } else { Narrow::DropColumns };
    let columns = match style.width {
        Some(width) if !style.full => columns.fit(width, narrow),
        _ => columns,
    };
    match columns.float().filter(|_| style.colours) {
        Some(float) => painted(columns, float),
        None => render(columns),
    }
}

/// With the column `float` in the colours of the rows' risks.
fn painted(columns: Columns, float: usize) -> String {
    let (widths, risks) = (columns.widths(), columns.risks.clone());
    let begin = widths.iter().take(float).map(|width| width + GAP).sum();
    let risks = std::iter::once(None).chain(risks);
    let lines = render(columns);
    let painted = lines.lines().zip(risks).map(|(line, risk)| match risk {
        Some(risk) => paint(line, begin, begin + widths[float], risk) + "\n",
        None => line.to_owned() + "\n",
    });
    painted.collect()
}

/// The part of a line between two columns of the screen, in the colour of a risk.
fn paint(line: &str, begin: usize, end: usize, risk: Risk) -> String {
    let colour = match risk {
        Risk::Safe => "32",
        Risk::Tight => "33",
        Risk::Likely => "31",
        Risk::Late => "1;31",
    };
    let byte = |column: usize| {
        let is_there = |at: &usize| crate::columns::width(&line[..*at]) >= column;
        line.char_indices().map(|(at, _)| at).find(is_there).unwrap_or(line.len())
    };
    let (begin, end) = (byte(begin), byte(end));
    format!("{}\u{1b}[{colour}m{}\u{1b}[0m{}", &line[..begin], &line[begin..end], &line[end..])
}

/// `zone`: in which times of day are shown. Deadlines are shown where any of them had one.
pub fn of_ended<'a>(ended: impl IntoIterator<Item = &'a EndedTask>, zone: &TimeZone) -> String {
    let ended: Vec<&EndedTask> = ended.into_iter().collect();
    let has_deadline = ended.iter().any(|task| task.judgement.is_some());
    let (mut headings, mut numeric) = (
        vec!["GPU", "TENANT", "OWNER", "PEAK MEMORY", "STARTED", "ENDED", "LASTED"],
        vec![true, false, false, true, false, false, true],
    );
    if has_deadline {
        headings.extend(["DEADLINE", "FLOAT", "VERDICT"]);
        numeric.extend([true, true, false]);
    }
    let rows = ended.into_iter().map(|task| {
        let judged = judged(task).into_iter().filter(|_| has_deadline);
        ended_row(task, zone).into_iter().chain(judged).collect()
    });
    render(Columns::new(&headings, &numeric, rows.collect()))
}

fn ended_row(task: &EndedTask, zone: &TimeZone) -> [String; 7] {
    let gpus: Vec<String> = task.gpus.iter().map(ToString::to_string).collect();
    [
        gpus.join(","),
        task.container_name.clone(),
        task.owner.clone().unwrap_or_else(unknown),
        task.peak_memory_bytes.map_or_else(unknown, |bytes| bytes.to_string()),
        time(task.started_at, zone),
        time(task.ended_at, zone),
        elapsed(task.seconds),
    ]
}

fn judged(task: &EndedTask) -> [String; 3] {
    let Some(judgement) = &task.judgement else { return [unknown(), unknown(), unknown()] };
    let float = judgement.float_seconds.map_or_else(unknown, signed);
    [judgement.deadline.to_string(), float, judgement.verdict().as_str().to_owned()]
}

fn unknown() -> String {
    "-".to_owned()
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
    use crate::testing::{busy, contended, deadlines, ended, judged_tasks, row};

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
    fn deadlines_in_a_hundred_columns() {
        let table = of_tasks(&deadlines().tasks, Style { width: Some(100), ..Style::default() });
        assert!(table.lines().all(|line| crate::columns::width(line) <= 100), "{table}");
        insta::assert_snapshot!(table);
    }

    #[test]
    fn deadlines_with_where_they_come_from() {
        insta::assert_snapshot!(of_tasks(&deadlines().tasks, Style { wide: true, ..Style::default() }));
    }

    #[test]
    fn what_is_left_has_the_colour_of_its_risk_and_nothing_else_has_one() {
        let mut tasks = deadlines().tasks;
        tasks[0].container_name = "訓練".into();
        let coloured = of_tasks(&tasks, Style { colours: true, ..Style::default() });
        for painted in ["\u{1b}[32m 5.2s", "\u{1b}[33m 1.1s", "\u{1b}[31m12.0s", "\u{1b}[1;31m-0.8s"] {
            assert!(coloured.contains(&format!("{painted}\u{1b}[0m  ")), "{painted:?} is not in\n{coloured:?}");
        }
        assert_eq!(coloured.matches("\u{1b}[0m").count(), 4, "{coloured:?}");
        let plain = ["32", "33", "31", "1;31", "0"]
            .iter()
            .fold(coloured, |table, code| table.replace(&format!("\u{1b}[{code}m"), ""));
        assert_eq!(plain, of_tasks(&tasks, Style::default()));
    }

    #[test]
    fn ended_tasks_some_of_which_had_a_deadline() {
        insta::assert_snapshot!(of_ended(&judged_tasks(), &TimeZone::UTC));
    }

    #[test]
    fn nothing_is_shortened_when_told_so_even_if_it_does_not_fit() {
        let long = row("a-very-long-name-that-a-person-gave-to-a-container-without-thinking-of-tables");
        let table = of_tasks([&long], Style { width: Some(80), full: true, ..Style::default() });
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
