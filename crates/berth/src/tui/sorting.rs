//! The order and the choice of rows.

use std::cmp::Ordering;

use berth_model::TaskRow;
use berth_model::fields::FLOAT;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortKey {
    Memory,
    Core,
    Time,
    Float,
    Name,
    Gpu,
}

/// Unknown values come last in every order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub key: SortKey,
    pub is_reversed: bool,
}

impl SortKey {
    pub fn for_key(c: char) -> Option<Self> {
        Some(match c {
            'm' => SortKey::Memory,
            'c' => SortKey::Core,
            't' => SortKey::Time,
            'f' => SortKey::Float,
            'n' => SortKey::Name,
            'g' => SortKey::Gpu,
            _ => return None,
        })
    }

    /// The field it sorts by, by its name in the list of fields.
    pub fn field(self) -> &'static str {
        match self {
            SortKey::Memory => "gpu_memory_bytes",
            SortKey::Core => "gpu_core_pct",
            SortKey::Time => "task_seconds",
            SortKey::Float => FLOAT.name,
            SortKey::Name => "container_name",
            SortKey::Gpu => "gpu_index",
        }
    }

    /// Who asks for amounts wants the largest first; of what is left, the least.
    fn largest_first(self) -> bool {
        matches!(self, SortKey::Memory | SortKey::Core | SortKey::Time)
    }
}

impl Default for Order {
    fn default() -> Self {
        Self { key: SortKey::Gpu, is_reversed: false }
    }
}

impl Order {
    pub fn is_descending(self) -> bool {
        self.key.largest_first() != self.is_reversed
    }

    pub fn compare(self, a: &TaskRow, b: &TaskRow) -> Ordering {
        let down = self.is_descending();
        match self.key {
            SortKey::Memory => known_first(a.gpu_memory_bytes, b.gpu_memory_bytes, down, Ord::cmp),
            SortKey::Core => known_first(a.gpu_core_pct, b.gpu_core_pct, down, Ord::cmp),
            SortKey::Time => known_first(a.task_seconds, b.task_seconds, down, f64::total_cmp),
            SortKey::Float => known_first(float(a), float(b), down, f64::total_cmp),
            SortKey::Name => known_first(Some(&a.container_name), Some(&b.container_name), down, Ord::cmp),
            SortKey::Gpu => known_first(a.gpu_index, b.gpu_index, down, Ord::cmp),
        }
    }
}

fn float(row: &TaskRow) -> Option<f64> {
    Some(row.deadline.as_ref()?.work.as_ref()?.float_seconds)
}

fn known_first<T>(a: Option<T>, b: Option<T>, down: bool, compare: fn(&T, &T) -> Ordering) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if down => compare(&b, &a),
        (Some(a), Some(b)) => compare(&a, &b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// Whether `row` has `filter` in anything a person may know it by. Upper and lower case are the same.
pub fn matches(row: &TaskRow, filter: &str) -> bool {
    let filter = filter.to_lowercase();
    let id = row.container_id.as_ref().map(|id| id.0.as_str());
    [Some(row.container_name.as_str()), row.owner.as_deref(), id, row.image.as_deref(), Some(&row.command)]
        .into_iter()
        .flatten()
        .any(|text| text.to_lowercase().contains(&filter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{busy, deadlines};

    fn names(order: Order) -> Vec<String> {
        names_of(busy().tasks, order)
    }

    fn names_of(mut rows: Vec<TaskRow>, order: Order) -> Vec<String> {
        rows.sort_by(|a, b| order.compare(a, b));
        rows.into_iter().map(|row| row.container_name.chars().take(8).collect()).collect()
    }

    #[test]
    fn amounts_come_largest_first_and_the_unknown_last_both_ways() {
        let order = Order { key: SortKey::Memory, is_reversed: false };
        assert_eq!(names(order), ["trainer", "linus", "notebook", "/team-a/"]);
        let order = Order { is_reversed: true, ..order };
        assert_eq!(names(order), ["notebook", "linus", "trainer", "/team-a/"]);
    }

    #[test]
    fn who_has_least_time_left_comes_first_and_who_has_no_deadline_last() {
        let order = Order { key: SortKey::Float, is_reversed: false };
        let sorted = names_of(deadlines().tasks, order);
        assert_eq!(sorted, ["eager", "report", "trainer", "train-8", "server", "notebook"]);
        let sorted = names_of(deadlines().tasks, Order { is_reversed: true, ..order });
        assert_eq!(sorted[..4], ["train-8", "trainer", "report", "eager"]);
    }

    #[test]
    fn names_come_in_the_order_of_the_alphabet() {
        assert_eq!(
            names(Order { key: SortKey::Name, is_reversed: false }),
            ["/team-a/", "linus", "notebook", "trainer"]
        );
    }

    #[test]
    fn a_filter_finds_owner_image_and_command_in_any_case() {
        let rows = busy().tasks;
        let found = |filter| rows.iter().filter(|row| matches(row, filter)).count();
        assert_eq!((found("GRACE"), found("blender"), found("pytorch"), found("nobody")), (1, 1, 3, 0));
    }
}
