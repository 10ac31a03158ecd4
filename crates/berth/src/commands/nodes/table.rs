//! Nodes of a cluster as rows: what each has, and whether it would take what is asked about.

use berth_model::Bytes;
use berth_model::cluster::api::Node;
use berth_model::cluster::{GpuReport, Report};

use crate::columns::{self, Columns, GAP, cut};
use crate::words::deadline::brief;

/// Headings, and which are of numbers. The name stands first, the verdict last.
const COLUMNS: [(&str, bool); 9] = [
    ("NODE", false),
    ("GPUS", true),
    ("FREE", true),
    ("CORE", true),
    ("DEADLINES", true),
    ("OTHERS", true),
    ("COMING", true),
    ("AGE", true),
    ("WOULD TAKE IT", false),
];
/// Columns that can be left out, the most dispensable first.
const MAY_BE_DROPPED: [&str; 6] = ["OTHERS", "COMING", "CORE", "GPUS", "DEADLINES", "AGE"];
/// A verdict keeps at least this much while there are columns to leave out, and a name this much.
const LEAST_VERDICT: usize = 28;
const LEAST_NAME: usize = 20;

/// Lines are no wider than `width`, as far as that can be; `None` leaves them as long as they are.
pub fn columns<'a>(nodes: impl IntoIterator<Item = &'a Node>, width: Option<usize>) -> Columns {
    let nodes: Vec<&Node> = nodes.into_iter().collect();
    let rows: Vec<Vec<String>> = nodes.iter().map(|node| row(node)).collect();
    let all = of(&rows, &[]);
    let Some(width) = width else { return all };
    let fits = |columns: &Columns| columns.line_width() <= width;
    if fits(&all) {
        return all;
    }
    let with_room = (0..=MAY_BE_DROPPED.len()).map(|count| &MAY_BE_DROPPED[..count]);
    let dropped =
        with_room.into_iter().find(|dropped| verdict_room(&short_names(&rows), dropped, width) >= LEAST_VERDICT);
    let dropped = dropped.unwrap_or(&MAY_BE_DROPPED);
    let mut rows = short_names(&rows);
    let room = verdict_room(&rows, dropped, width);
    for (node, row) in nodes.iter().zip(&mut rows) {
        if let Some(verdict) = row.last_mut().filter(|verdict| columns::width(verdict) > room) {
            let word = node.why_not.as_ref().map(|why| format!("no: {}", why.word()));
            *verdict = cut(word.as_ref().unwrap_or(verdict), room);
        }
    }
    of(&rows, dropped)
}

fn of(rows: &[Vec<String>], dropped: &[&str]) -> Columns {
    let kept: Vec<usize> = (0..COLUMNS.len()).filter(|column| !dropped.contains(&COLUMNS[*column].0)).collect();
    let (headings, numeric): (Vec<&str>, Vec<bool>) = kept.iter().map(|column| COLUMNS[*column]).unzip();
    let rows = rows.iter().map(|row| kept.iter().map(|column| row[*column].clone()).collect());
    Columns::new(&headings, &numeric, rows.collect())
}

/// What is left of a line for the last column.
fn verdict_room(rows: &[Vec<String>], dropped: &[&str], width: usize) -> usize {
    let widths = of(rows, dropped).widths();
    let others: usize = widths.iter().rev().skip(1).map(|width| width + GAP).sum();
    width.saturating_sub(others)
}

fn short_names(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let mut rows = rows.to_vec();
    rows.iter_mut().filter_map(|row| row.first_mut()).for_each(|name| *name = cut(name, LEAST_NAME));
    rows
}

fn row(node: &Node) -> Vec<String> {
    let of_report = |text: fn(&Report) -> Option<String>| or_dash(node.report.as_ref().and_then(text));
    vec![
        name(node).to_owned(),
        of_report(|report| Some(report.gpus.len().to_string())),
        of_report(|report| Some(most_free(report)?.to_string())),
        of_report(core),
        of_report(|report| Some(sum(report, |gpu| gpu.loads.len()))),
        of_report(|report| Some(sum(report, |gpu| gpu.others as usize))),
        node.reserved.to_string(),
        or_dash(node.age_seconds.map(brief)),
        verdict(node),
    ]
}

/// As people call it.
pub fn name(node: &Node) -> &str {
    node.name.as_deref().unwrap_or(node.node.as_str())
}

/// `yes (0.93)`, or why not; with what was wrong when its daemon was last asked.
pub fn verdict(node: &Node) -> String {
    let verdict = match (&node.why_not, node.score) {
        (Some(why), _) => format!("no: {why}"),
        (None, Some(score)) => format!("yes ({score:.2})"),
        (None, None) => "yes".to_owned(),
    };
    match &node.refused {
        Some(refused) => format!("{verdict}; when last asked: {refused}"),
        None => verdict,
    }
}

/// On the GPU that has the most; what is reserved is not taken off.
fn most_free(report: &Report) -> Option<Bytes> {
    report.gpus.iter().filter(|gpu| !gpu.is_lost).filter_map(GpuReport::free_bytes).max()
}

/// Of all its GPUs, on average.
fn core(report: &Report) -> Option<String> {
    let known: Vec<u32> = report.gpus.iter().filter_map(|gpu| gpu.core_pct).map(|core| core.get().into()).collect();
    let count = u32::try_from(known.len()).ok().filter(|count| *count > 0)?;
    Some(format!("{} %", known.iter().sum::<u32>() / count))
}

fn sum(report: &Report, of: impl Fn(&GpuReport) -> usize) -> String {
    report.gpus.iter().map(of).sum::<usize>().to_string()
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::place::samples;

    fn rendered(nodes: &[Node], width: usize) -> String {
        crate::table::render(columns(nodes, Some(width)))
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_reasons_become_words() {
        insta::assert_snapshot!(rendered(&samples::nodes(), 80));
    }

    #[test]
    fn lines_are_no_wider_than_told_however_long_names_are() {
        let mut nodes = samples::nodes();
        nodes[0].name = Some("ip-10-0-113-204.eu-central-1.compute.internal".into());
        for width in [60, 80, 100, 120, 200] {
            let told = rendered(&nodes, width);
            assert!(told.lines().all(|line| columns::width(line) <= width), "{width}\n{told}");
        }
        assert!(rendered(&nodes, 200).contains("compute.internal"), "there is room for it");
    }
}
