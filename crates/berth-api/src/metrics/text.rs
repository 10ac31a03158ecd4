//! From OpenMetrics to Prometheus' older text format, which is what scrapers get that do not ask for the newer one.
//!
//! The two differ in little: in the older one a counter's head carries the name of its samples, `_total` included, and
//! there is no unit line and no end mark.

use super::names;

const COUNTER_SUFFIX: &str = "_total";

/// Without the sum and count of histograms that have buckets below zero: what can fall is no counter, and OpenMetrics does not allow it.
pub(super) fn without_falling_sums(page: &str) -> String {
    let (name, _) = names::DEADLINE_FLOAT;
    let is_sum = |line: &str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with("_sum ") || rest.starts_with("_count "))
    };
    page.lines().filter(|line| !is_sum(line)).flat_map(|line| [line, "\n"]).collect()
}

pub(super) fn from_openmetrics(page: &str) -> String {
    let counters: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut out = String::with_capacity(page.len());
    for line in page.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        match head(line) {
            Some((keyword, name, rest)) if counters.contains(&name) => {
                out.push_str(&format!("# {keyword} {name}{COUNTER_SUFFIX} {rest}"));
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// `# HELP name text` or `# TYPE name kind`.
fn head(line: &str) -> Option<(&str, &str, &str)> {
    let mut parts = line.strip_prefix("# ")?.splitn(3, ' ');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_headed_by_the_name_of_their_samples_and_gauges_stay() {
        let openmetrics = "# HELP a Looks, so far.\n# TYPE a counter\na_total 3\n\
                           # HELP b_bytes Size.\n# TYPE b_bytes gauge\n# UNIT b_bytes bytes\nb_bytes{x=\"# EOF\"} 4\n# EOF\n";
        let expected = "# HELP a_total Looks, so far.\n# TYPE a_total counter\na_total 3\n\
                        # HELP b_bytes Size.\n# TYPE b_bytes gauge\nb_bytes{x=\"# EOF\"} 4\n";
        assert_eq!(from_openmetrics(openmetrics), expected);
    }
}
