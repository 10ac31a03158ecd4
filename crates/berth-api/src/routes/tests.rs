//! The interface document and the router name the same things.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::*;
use crate::error::{ErrorBody, ErrorDetail};
use crate::feed::Notice;

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap_or_else(|| panic!("{value} is no object")).keys().cloned().collect()
}

#[test]
fn the_document_lists_exactly_the_paths_there_are() {
    let served: BTreeSet<String> = table().into_iter().map(|(path, _)| path.to_owned()).collect();
    assert_eq!(keys(&document()["paths"]), served);
    for (path, item) in document()["paths"].as_object().unwrap() {
        assert_eq!(keys(item), BTreeSet::from(["get".to_owned()]), "{path}");
    }
}

#[test]
fn the_document_s_schemas_have_exactly_the_keys_of_the_answers() {
    let snapshot = samples::snapshot();
    let health = Health { status: "ok".into(), taken_at: snapshot.taken_at };
    let error = ErrorBody { error: ErrorDetail { code: String::new(), message: String::new() } };
    let answers = [
        ("Snapshot", json(&*snapshot)),
        ("Gpu", json(&snapshot.gpus[0])),
        ("Task", json(&snapshot.tasks[0])),
        ("EndedTask", json(&snapshot.ended[0])),
        ("Source", json(&snapshot.sources[1])),
        ("Counters", json(&snapshot.counters)),
        ("ProbeCounters", json(&snapshot.probes)),
        ("Health", json(&health)),
        ("Version", json(&Version { version: String::new(), api: String::new() })),
        ("Error", json(&error)),
        ("Change", json(&Notice { id: 1, time: snapshot.taken_at, change: samples::change() })),
    ];
    for (name, answer) in answers {
        let schema = &document()["components"]["schemas"][name];
        let described = keys(&schema["properties"]);
        let missing: Vec<_> = keys(&answer).difference(&described).cloned().collect();
        assert!(missing.is_empty(), "schema {name} lacks {missing:?}");
        // A change has other keys for each kind of change; its schema names those that all have.
        if name != "Change" {
            assert_eq!(keys(&answer), described, "schema {name}");
        }
    }
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    let document = document();
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document.pointer(reference).is_some(), "{reference} leads nowhere");
    }
}
