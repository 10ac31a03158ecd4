//! Keys of a cluster as the command makes them: in files for their owner alone, and nowhere else.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::run::berth;

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_cluster_s_key_is_made_once_and_each_node_s_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, one, again) =
        (dir.path().join("cluster.key"), dir.path().join("one.key"), dir.path().join("again.key"));
    let new = ["cluster", "key", "new", "--out", cluster.to_str().unwrap()];
    let made = berth(&new).ok();
    assert!(made.contains("holds the key of the cluster"), "{made}");
    let node = |out: &Path| {
        let from = cluster.to_str().unwrap();
        berth(&["cluster", "key", "node", "worker-1", "--cluster-key", from, "--out", out.to_str().unwrap(), "--json"])
    };
    let told: Value = serde_json::from_str(&node(&one).ok()).unwrap();
    assert_eq!(told, json!({"file": one, "node": "worker-1"}));
    node(&again).ok();
    assert_eq!(text(&one), text(&again), "the same each time");
    assert!(text(&one).starts_with("berth-node-key-v1 worker-1 "), "{}", text(&one));
    for file in [&cluster, &one] {
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        let key = text(file);
        assert!(!made.contains(key.split_whitespace().last().unwrap()), "it was printed");
    }

    let before = text(&cluster);
    let refused = berth(&new);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("is there already") && refused.stderr.contains("--force"), "{}", refused.stderr);
    assert_eq!(text(&cluster), before);
    berth(&[&new[..], &["--force"]].concat()).ok();
    assert_ne!(text(&cluster), before);
}

#[test]
fn what_is_no_node_and_what_is_no_cluster_s_key_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, node) = (dir.path().join("cluster.key"), dir.path().join("node.key"));
    let (cluster, node) = (cluster.to_str().unwrap(), node.to_str().unwrap());
    berth(&["cluster", "key", "new", "--out", cluster]).ok();
    let run = berth(&["cluster", "key", "node", "a/b", "--cluster-key", cluster, "--out", node]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("`a/b` names no node"), "{}", run.stderr);
    let run = berth(&["cluster", "key", "node", "..", "--cluster-key", cluster, "--out", node]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("begins with a letter or a digit"), "{}", run.stderr);
    berth(&["cluster", "key", "node", "a", "--cluster-key", cluster, "--out", node]).ok();
    let run = berth(&["cluster", "key", "node", "b", "--cluster-key", node]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("holds the key of one node, and the cluster's is needed"), "{}", run.stderr);
    let run = berth(&["cluster", "key", "node", "b", "--cluster-key", "/nowhere/k"]);
    assert!(run.stderr.contains("reading the key in /nowhere/k"), "{}", run.stderr);
}
