//! The interface document and the router name the same things.

use std::collections::BTreeSet;

use berth_model::settings::PolicyName;
use berth_model::watch::feedback::Feedback;
use berth_model::watch::series::SeriesTold;
use serde::Serialize;
use serde_json::Value;

use super::*;
#[path = "asking.rs"]
mod asking;
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
        let methods = match path.as_str() {
            paths::HOLD | paths::RELEASE | paths::DEADLINE | paths::SLO | paths::KERNEL_POLICY => {
                vec!["post"]
            }
            paths::POLICY | paths::FEEDBACK => vec!["get", "post"],
            _ => vec!["get"],
        };
        assert_eq!(keys(item).iter().collect::<Vec<_>>(), methods, "{path}");
    }
}

#[test]
fn the_document_s_schemas_have_exactly_the_keys_of_the_answers() {
    let snapshot = samples::snapshot();
    let health = Health { status: "ok".into(), taken_at: snapshot.taken_at };
    let error = ErrorBody { error: ErrorDetail { code: String::new(), message: String::new() } };
    let report = Report::of(&snapshot, &samples::about(), 1);
    let answers = [
        ("Snapshot", json(&*snapshot)),
        ("Gpu", json(&snapshot.gpus[0])),
        ("Task", json(&snapshot.tasks[0])),
        ("EndedTask", json(&snapshot.ended[0])),
        ("Source", json(&snapshot.sources[1])),
        ("Counters", json(&snapshot.counters)),
        ("ProbeCounters", json(&snapshot.probes)),
        ("Health", json(&health)),
        ("Hold", json(&samples::hold())),
        ("Management", json(&snapshot.management)),
        ("Queued", json(&snapshot.management.as_ref().unwrap().queue[0])),
        ("HoldCounters", json(&snapshot.management.as_ref().unwrap().holds)),
        ("Holds", json(&Holds { policy: None, dry_run: false, queue: vec![], tenants: vec![] })),
        ("Standing", json(&asking::standing())),
        ("HoldRequest", json(&HoldRequest { tenant: String::new(), by: None, reason: None })),
        ("ReleaseRequest", json(&ReleaseRequest::default())),
        ("Policy", json(&asking::policy(PolicyName::Off))),
        ("PolicyRequest", json(&PolicyRequest { policy: PolicyName::Off, dry_run: None })),
        ("Explanation", json(&asking::explanation())),
        ("History", json(&asking::told())),
        ("Record", json(&asking::told().records[0])),
        ("Before", json(&asking::before())),
        ("PastHold", json(&asking::explanation().history[0])),
        ("Deadline", json(&asking::deadlines::standing().counts)),
        ("Work", json(&asking::deadlines::work())),
        ("Spread", json(&asking::deadlines::spread())),
        ("DeadlineTotals", json(&snapshot.deadlines)),
        ("DeadlineStanding", json(&asking::deadlines::standing())),
        ("DeadlineRequest", json(&DeadlineRequest::default())),
        ("KernelLevel", json(&snapshot.kernels)),
        ("KernelRow", json(&samples::kernel_row())),
        ("AutoChoice", json(&samples::auto_choice())),
        ("PolicyFigures", json(&samples::auto_choice().measured[0])),
        ("WindowFigures", json(&samples::auto_choice().latest)),
        (
            "KernelPolicyRequest",
            json(&KernelPolicyRequest { policy: berth_model::settings::KernelPolicyName::Jct, gpu: Some("0".into()) }),
        ),
        ("SloStanding", json(&asking::kernels::standing())),
        ("SloRequest", json(&SloRequest::default())),
        ("Admission", json(&asking::deadlines::admission())),
        ("GpuAdmission", json(&asking::deadlines::admission().gpus[0])),
        ("DueWork", json(&asking::deadlines::admission().gpus[0].before[0])),
        ("FeedbackRequest", json(&FeedbackRequest { tenant: String::new(), said: Feedback::Good })),
        ("WatchTotals", json(&snapshot.watch)),
        ("SeriesTotals", json(&snapshot.watch.series)),
        ("Heard", json(&asking::watch::heard())),
        ("Mood", json(&asking::watch::mood())),
        ("Finding", json(&asking::watch::finding())),
        ("Series", json(&SeriesTold::default())),
        ("Line", json(&asking::watch::line())),
        ("Figure", json(&asking::watch::line().values[0])),
        ("Report", json(&report)),
        ("GpuReport", json(&report.gpus[0])),
        ("LoadReport", json(&report.gpus[0].loads[0])),
        ("Past", json(&asking::deadlines::past())),
        ("Version", json(&Version { version: String::new(), api: String::new() })),
        ("Error", json(&error)),
        ("Change", json(&Notice { id: 1, time: snapshot.taken_at, change: samples::change() })),
    ];
    for (name, answer) in answers {
        let schema = &document()["components"]["schemas"][name];
        let described = keys(&schema["properties"]);
        let missing: Vec<_> = keys(&answer).difference(&described).cloned().collect();
        assert!(missing.is_empty(), "schema {name} lacks {missing:?}");
        // A change and a record have other keys for each kind, a hold of the past for each end of it.
        if !["Change", "PastHold", "Record"].contains(&name) {
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
