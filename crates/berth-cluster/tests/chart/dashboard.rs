//! The dashboard: every metric it draws is one that berth has.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Words of the text that are named like a metric.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("berth_") && word.len() > "berth_".len()).map(ToOwned::to_owned).collect()
}

/// A counter gets `_total` and a histogram `_bucket` when they are written.
fn is_known(metric: &str, known: &BTreeSet<String>) -> bool {
    let bare = ["_total", "_bucket"].iter().find_map(|suffix| metric.strip_suffix(suffix));
    known.contains(metric) || bare.is_some_and(|bare| known.contains(bare))
}

#[test]
fn every_metric_of_the_dashboard_exists() {
    let mut known = metrics(&read("crates/berth-api/src/metrics/names.rs"));
    known.append(&mut metrics(&read("crates/berth-cluster/src/placer/metrics.rs")));
    let drawn = metrics(&read("packaging/grafana/berth.json"));
    assert!(drawn.len() > 10, "{drawn:?}");
    let unknown: Vec<_> = drawn.iter().filter(|metric| !is_known(metric, &known)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn every_panel_is_drawn_from_something_and_has_its_own_number() {
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana/berth.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty() && targets.iter().all(|target| target["expr"].is_string()), "{}", panel["title"]);
    }
}

#[test]
fn what_every_placer_knows_is_counted_once() {
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana/berth.json")).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().filter_map(|panel| panel["targets"].as_array());
    let drawn: Vec<&str> = targets.flatten().map(|target| target["expr"].as_str().unwrap()).collect();
    for gauge in ["berth_placer_nodes", "berth_placer_reservations"] {
        assert!(drawn.iter().any(|expr| expr.contains(gauge)), "{gauge}");
        for expr in drawn.iter().filter(|expr| expr.contains(gauge)) {
            let acting = expr.matches("berth_placer_acting").count();
            assert_eq!(acting, expr.matches(gauge).count(), "of the placer that acts alone: {expr}");
        }
    }
}
