//! `berth nodes` and `berth place` against a placer that says what it was told to: output, errors, exit codes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::run::{Run, berth, dir_named};

/// Answers everybody the same.
struct Placer {
    dir: TempDir,
}

impl Placer {
    fn start(answer: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir_named(&dir, "s")).unwrap();
        let body = answer.to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length";
        let answer = format!("{head}: {}\r\n\r\n{body}", body.len());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    if let Some(told) = line.to_lowercase().strip_prefix("content-length:") {
                        length = told.trim().parse().unwrap();
                    }
                    if line.trim().is_empty() {
                        break;
                    }
                }
                reader.read_exact(&mut vec![0; length]).unwrap();
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        Self { dir }
    }

    fn run(&self, args: &[&str]) -> Run {
        let set = format!("placer.socket={}", dir_named(&self.dir, "s"));
        berth(&[&["--set", &set], args].concat())
    }
}

fn node(id: &str, why_not: &Value) -> Value {
    json!({ "node": id, "name": null, "engine": "ready", "report": null, "age_seconds": null, "refused": null,
        "reserved": 0, "why_not": why_not, "score": if why_not.is_null() { json!(0.5) } else { Value::Null } })
}

#[test]
fn nodes_are_listed_with_why_not_and_as_they_were_told_in_json() {
    let told = json!({ "engine": "swarm", "strategy": "fit",
        "nodes": [node("worker-1", &Value::Null), node("worker-2", &json!({ "reason": "no_report" }))] });
    let placer = Placer::start(&told);
    let run = placer.run(&["nodes", "--deadline", "9s", "--memory", "20GiB", "--image", "a b"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert!(
        run.stdout.contains("yes (0.50)") && run.stdout.contains("no: its berth has not reported"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.ends_with("\n1 of 2 nodes of swarm would take it (strategy fit)\n"), "{}", run.stdout);
    let json: Value = serde_json::from_str(&placer.run(&["nodes", "--json"]).stdout).unwrap();
    for (key, value) in told.as_object().unwrap() {
        assert_eq!(json[key], *value, "{key}");
    }
}

#[test]
fn a_place_has_code_0_and_none_has_code_6() {
    let choice = json!({ "node": "worker-1", "gpus": ["GPU-1"] });
    let placer = Placer::start(&json!({ "choice": choice, "candidates": 1, "refusals": { "stale": 2 }, "nodes": [] }));
    let run = placer.run(&["place", "--deadline", "9s", "--image", "solver:3"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_eq!(
        run.stdout,
        "yes: on worker-1, GPU-1: the only node that would take it\n\n2 nodes would not take it:\n       2  stale\n"
    );
    let placer =
        Placer::start(&json!({ "choice": null, "candidates": 0, "refusals": { "would-be-late": 3 }, "nodes": [] }));
    let run = placer.run(&["place", "--deadline", "9s", "--takes", "8s"]);
    assert_eq!(run.code, 6, "{}", run.stderr);
    assert!(run.stdout.starts_with("no: none of 3 nodes would take it\n"), "{}", run.stdout);
}

#[test]
fn what_is_too_short_is_refused_before_anybody_is_asked() {
    for flag in ["--deadline", "--takes"] {
        let run = berth(&["place", flag, "1ns"]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
        assert!(run.stderr.contains("`1ns` is too short: it must be at least 1us"), "{}", run.stderr);
    }
}

#[test]
fn without_a_placer_it_is_said_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let set = format!("placer.socket={}", dir_named(&dir, "s"));
    for command in ["nodes", "place"] {
        let run = berth(&["--set", &set, command, "--deadline", "9s"]);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""));
        assert!(
            run.stderr.contains("berth cluster serve") && run.stderr.contains("no placer listens"),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn who_is_no_placer_is_not_taken_for_one() {
    let placer = Placer::start(&json!({ "hello": "world" }));
    let run = placer.run(&["place"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("the placer's answer to /v1/place is not understood"), "{}", run.stderr);
}
