//! Rows of text in columns that fit a width: long cells of the columns that can spare it are cut.

use berth_model::TaskRow;
use berth_model::deadline::Risk;
use berth_model::fields::{FLOAT, Field, shown_of};
use ratatui::text::Span;

/// Columns keep at least this much when space is short, and names more.
const LEAST: usize = 8;
const LEAST_OF_NAME: usize = 16;
/// Between two columns.
pub const GAP: usize = 2;
/// The columns that may be cut, by name; the rest is numbers and short words.
const MAY_BE_CUT: [&str; 3] = ["container_name", "owner", "pids"];
/// Those that can be left out where the same is shown elsewhere, the most dispensable first.
const MAY_BE_DROPPED: [&str; 5] = ["container_id", "pids", "deadline.tally", "owner", "deadline"];

/// Headings and cells of tasks, by the list of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    pub headings: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub numeric: Vec<bool>,
    /// Of each row how likely it is to be late; none without work that is due.
    pub risks: Vec<Option<Risk>>,
    /// Names in the list of fields; empty for columns that are not of it.
    names: Vec<&'static str>,
}

/// What to do when cutting alone does not make lines fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Narrow {
    /// Lines get longer than asked for.
    KeepAll,
    DropColumns,
}

impl Columns {
    /// `full`: container ids as long as they are. `wide`: with reasons of holds, and where deadlines come from.
    pub fn of_tasks<'a>(tasks: impl IntoIterator<Item = &'a TaskRow>, full: bool, wide: bool) -> Self {
        let tasks: Vec<&TaskRow> = tasks.into_iter().collect();
        let fields = shown_of(tasks.iter().copied(), wide);
        let cell = |field: &Field, row: &TaskRow| match (&row.container_id, full) {
            (Some(id), true) if field.name == "container_id" => id.to_string(),
            _ => printable(&(field.text)(row)),
        };
        let risk = |row: &&TaskRow| Some(row.deadline.as_ref()?.work.as_ref()?.risk);
        Self {
            headings: fields.iter().map(|field| field.heading.to_owned()).collect(),
            risks: tasks.iter().map(risk).collect(),
            rows: tasks.into_iter().map(|row| fields.iter().map(|field| cell(field, row)).collect()).collect(),
            numeric: fields.iter().map(|field| field.numeric).collect(),
            names: fields.iter().map(|field| field.name).collect(),
        }
    }

    /// Where the column of a field is, by the field's name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| *known == name)
    }

    /// The column that is coloured by risk.
    pub fn float(&self) -> Option<usize> {
        self.position(FLOAT.name)
    }

    /// Columns whose cells are all kept in full.
    pub fn new(headings: &[&str], numeric: &[bool], rows: Vec<Vec<String>>) -> Self {
        let rows: Vec<_> = rows.into_iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
        Self {
            headings: headings.iter().map(|&heading| heading.to_owned()).collect(),
            risks: vec![None; rows.len()],
            rows,
            numeric: numeric.to_vec(),
            names: vec![""; headings.len()],
        }
    }

    /// The widest cell of each column, its heading included.
    pub fn widths(&self) -> Vec<usize> {
        let lines = || std::iter::once(&self.headings).chain(&self.rows);
        let widest = |column| lines().filter_map(|line| line.get(column)).map(|cell: &String| width(cell)).max();
        (0..self.headings.len()).map(|column| widest(column).unwrap_or(0)).collect()
    }

    /// Of a whole line, gaps included.
    pub fn line_width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
    }

    /// Makes lines no wider than `limit`, as far as that can be: by cutting cells, and if that is not enough by leaving columns out.
    pub fn fit(mut self, limit: usize, narrow: Narrow) -> Self {
        loop {
            let cut = self.clone().cut_to(limit);
            if cut.line_width() <= limit || narrow == Narrow::KeepAll || !self.drop_one() {
                return cut;
            }
        }
    }

    /// Cuts cells, longest column first, until lines are no wider than `limit` or nothing is left to cut.
    fn cut_to(mut self, limit: usize) -> Self {
        loop {
            let (widths, total) = (self.widths(), self.line_width());
            let longest = (0..widths.len())
                .filter(|&column| MAY_BE_CUT.contains(&self.names[column]) && widths[column] > self.least(column))
                .max_by_key(|&column| widths[column]);
            let Some(column) = longest.filter(|_| total > limit) else { return self };
            let target = widths[column].saturating_sub(total - limit).max(self.least(column));
            self.rows.iter_mut().for_each(|row| row[column] = cut(&row[column], target));
        }
    }

    fn least(&self, column: usize) -> usize {
        let least = if self.names[column] == "container_name" { LEAST_OF_NAME } else { LEAST };
        least.max(width(&self.headings[column]))
    }

    fn drop_one(&mut self) -> bool {
        let dispensable = MAY_BE_DROPPED.iter().find_map(|name| self.names.iter().position(|known| known == name));
        let Some(column) = dispensable else { return false };
        self.headings.remove(column);
        self.numeric.remove(column);
        self.names.remove(column);
        self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        true
    }
}

/// Names come from containers and processes: what controls a terminal, turns the text around it or makes two names look
/// like one must not reach it.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_invisible(c) { '\u{fffd}' } else { c }).collect()
}

/// Characters without a shape of their own: those Unicode calls ignorable by default, which those of its bidirectional
/// algorithm belong to, and its separators and annotations. Format characters that are seen, such as Arabic number signs,
/// are none of them.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// In lines of at most `limit` columns, broken between words; the last of at most `most` is cut.
pub fn fold(text: &str, limit: usize, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let is_full = lines.last().is_some_and(|line| !line.is_empty() && width(line) + 1 + width(word) > limit);
        if is_full && lines.len() < most {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            let gap = if line.is_empty() { "" } else { " " };
            *line += &format!("{gap}{word}");
        }
    }
    lines.iter().map(|line| cut(line, limit)).collect()
}

/// `text`, or as much of it as fits before an ellipsis.
pub fn cut(text: &str, limit: usize) -> String {
    if width(text) <= limit {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        if width(&kept) + width(c.encode_utf8(&mut [0; 4])) + 1 > limit {
            break;
        }
        kept.push(c);
    }
    kept + "…"
}

#[cfg(test)]
mod tests {
    use berth_model::fields::FIELDS;

    use super::*;
    use crate::testing::{busy, deadlines, row};

    #[test]
    fn lines_fit_and_numbers_are_never_cut() {
        let snapshot = busy();
        let full = Columns::of_tasks(&snapshot.tasks, false, false);
        let cut = full.clone().fit(90, Narrow::KeepAll);
        assert!(full.line_width() > 90 && cut.line_width() <= 90, "{} → {}", full.line_width(), cut.line_width());
        for (before, after) in full.rows.iter().zip(&cut.rows) {
            for column in (0..before.len()).filter(|&column| full.numeric[column]) {
                assert_eq!(before[column], after[column]);
            }
        }
    }

    #[test]
    fn names_of_columns_are_names_of_fields() {
        let fields = shown_of(&deadlines().tasks, true);
        for name in MAY_BE_CUT.iter().chain(&MAY_BE_DROPPED) {
            assert!(fields.iter().any(|field| field.name == *name), "{name}");
        }
    }

    #[test]
    fn what_is_left_until_a_deadline_is_the_last_to_be_left_out() {
        let narrow = Columns::of_tasks(&deadlines().tasks, false, false).fit(3, Narrow::DropColumns);
        assert!(narrow.float().is_some() && !narrow.headings.contains(&"DEADLINE".to_owned()), "{narrow:?}");
        assert_eq!(narrow.risks.len(), narrow.rows.len());
    }

    #[test]
    fn room_that_a_left_out_column_gives_goes_to_the_names() {
        let fitted = Columns::of_tasks(&busy().tasks, false, false).fit(85, Narrow::DropColumns);
        assert_eq!((fitted.position("container_id"), fitted.line_width()), (None, 85), "{fitted:?}");
    }

    #[test]
    fn what_fits_is_left_alone() {
        let columns = Columns::of_tasks(&busy().tasks, false, false);
        assert_eq!(columns.clone().fit(500, Narrow::DropColumns), columns);
    }

    #[test]
    fn a_width_nothing_fits_in_ends_with_the_least_instead_of_never() {
        let kept = Columns::of_tasks(&busy().tasks, true, false).fit(3, Narrow::KeepAll);
        assert_eq!(kept.headings.len(), FIELDS.len());
        let dropped = Columns::of_tasks(&busy().tasks, true, false).fit(3, Narrow::DropColumns);
        assert_eq!(dropped.headings.len(), FIELDS.len() - 3, "container id, pids and owner");
        assert!(dropped.rows.iter().all(|row| row.len() == dropped.headings.len() && !row[1].is_empty()));
    }

    #[test]
    fn wide_characters_count_as_they_are_shown() {
        assert_eq!(cut("訓練ジョブ", 7), "訓練ジ…");
        assert_eq!(cut("short", 7), "short");
    }

    #[test]
    fn escape_sequences_in_names_do_not_reach_the_terminal() {
        let mut row = row("x");
        row.container_name = "a\u{1b}[31mb\n".into();
        let columns = Columns::of_tasks([&row], false, false);
        assert_eq!(columns.rows[0][1], "a\u{fffd}[31mb\u{fffd}");
    }

    #[test]
    fn a_long_text_is_folded_between_words_and_only_what_is_too_much_is_cut() {
        assert_eq!(fold("GPU 0 has 0 B left", 10, 3), ["GPU 0 has", "0 B left"]);
        assert_eq!(fold("GPU 0 has 0 B left", 10, 1), ["GPU 0 has…"]);
        assert_eq!(fold("a verylongword b", 6, 3), ["a", "veryl…", "b"]);
        assert_eq!(fold("", 10, 3), [""]);
    }

    #[test]
    fn characters_that_turn_a_line_around_do_not_reach_the_terminal() {
        let bidi = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
        assert_eq!(printable(bidi), "\u{fffd}".repeat(12));
        assert_eq!(printable("שלום 訓練 é – ok"), "שלום 訓練 é – ok");
    }

    #[test]
    fn a_name_cannot_hide_what_makes_it_another_name() {
        let hidden = "\u{ad}\u{200b}\u{200c}\u{200d}\u{2028}\u{2029}\u{2060}\u{2064}\u{206f}\u{feff}\u{fe0f}\u{3164}\u{fff9}\u{e0041}";
        for c in hidden.chars() {
            assert_eq!(printable(&format!("ad{c}a")), "ad\u{fffd}a", "U+{:04X}", u32::from(c));
        }
        assert_eq!(printable("a\u{301}\u{600} \u{fffd}"), "a\u{301}\u{600} \u{fffd}", "these are seen");
    }
}
