//! The shape of the workspace, held by a test: who may depend on whom, which code is pure, where `unsafe` may stand.
//!
//! The table here is the architecture; `architecture/rules.rs` says what its columns forbid, `workspace.rs` reads the
//! manifests and `source.rs` the code. Test code is not judged: a test may look at anything.

use std::collections::BTreeSet;

#[path = "architecture/rules.rs"]
mod rules;
#[path = "architecture/source.rs"]
mod source;
#[path = "architecture/workspace.rs"]
mod workspace;

use rules::{ALL, Complaints, Edge, Rule};
use workspace::Workspace;

/// Who may do what. A new crate needs a line here.
const RULES: &[Rule] = &[
    Rule { name: "berth-model", internal: &[], edge: Edge::Never, pure: ALL, may_say_unsafe: &[] },
    Rule { name: "berth-policy", internal: &["berth-model"], edge: Edge::Never, pure: ALL, may_say_unsafe: &[] },
    Rule { name: "berth-proto", internal: &[], edge: Edge::Never, pure: &[], may_say_unsafe: &[] },
    Rule { name: "berth-store", internal: &["berth-model"], edge: Edge::Never, pure: &[], may_say_unsafe: &[] },
    Rule {
        name: "berth-host",
        internal: &["berth-model", "berth-proto"],
        edge: Edge::Own,
        pure: &[],
        may_say_unsafe: &[],
    },
    Rule {
        name: "berth-engine",
        internal: &["berth-model", "berth-policy", "berth-proto", "berth-host", "berth-store"],
        edge: Edge::Behind,
        pure: &[],
        may_say_unsafe: &[],
    },
    Rule { name: "berth-api", internal: &["berth-model"], edge: Edge::Own, pure: &[], may_say_unsafe: &[] },
    Rule {
        name: "berth-cluster",
        internal: &["berth-model", "berth-policy"],
        edge: Edge::Own,
        pure: &[
            "frame",
            "kubernetes/annotations",
            "kubernetes/extender/ask",
            "kubernetes/extender/filter",
            "kubernetes/extender/prioritize",
            "kubernetes/extender/types",
            "kubernetes/gpunode",
            "kubernetes/node",
            "kubernetes/pod",
            "kubernetes/waiting",
            "kubernetes/webhook",
            "placer/book",
            "placer/constraint",
            "placer/pasts",
            "swarm/labels",
            "swarm/node",
            "swarm/service",
        ],
        may_say_unsafe: &[],
    },
    Rule {
        name: "berth-sim",
        internal: &["berth-proto"],
        edge: Edge::Never,
        pure: &["engine", "fault", "scenario"],
        may_say_unsafe: &[],
    },
    // Shared libraries with a C interface: every exported function is an edge.
    Rule { name: "berth-sim-cuda", internal: &["berth-proto"], edge: Edge::Never, pure: &[], may_say_unsafe: ALL },
    Rule { name: "berth-sim-nvml", internal: &["berth-proto"], edge: Edge::Never, pure: &[], may_say_unsafe: ALL },
    Rule {
        name: "berth-shim",
        internal: &["berth-proto"],
        edge: Edge::Never,
        pure: &["book", "capture", "estimate", "pace", "streams"],
        may_say_unsafe: &["hooks"],
    },
    Rule { name: "berth-load", internal: &["berth-proto"], edge: Edge::Never, pure: &[], may_say_unsafe: &[] },
    Rule {
        name: "berth",
        internal: &[
            "berth-model",
            "berth-policy",
            "berth-proto",
            "berth-host",
            "berth-store",
            "berth-engine",
            "berth-api",
            "berth-cluster",
            "berth-sim",
            "berth-load",
        ],
        edge: Edge::Own,
        pure: &[
            "cluster_sim",
            "docker_cli/command",
            "docker_cli/deadline",
            "docker_cli/flags",
            "docker_cli/help",
            "docker_cli/plan",
            "docker_cli/plugin",
            "docker_cli/ps",
            "docker_cli/service",
            "kubectl/args",
            "kubectl/show",
        ],
        may_say_unsafe: &[],
    },
];

fn assert_none(complaints: Complaints) {
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

#[test]
fn every_crate_has_a_rule() {
    let found: BTreeSet<String> = Workspace::load().manifests.into_keys().collect();
    let known: BTreeSet<String> = RULES.iter().map(|rule| rule.name.to_owned()).collect();
    assert_eq!(found, known);
}

#[test]
fn dependencies_go_down_only() {
    let workspace = Workspace::load();
    assert_none(RULES.iter().flat_map(|rule| rules::foreign_edges(rule, &workspace.manifests[rule.name])).collect());
}

#[test]
fn runtimes_and_servers_stay_at_the_edges() {
    let Workspace { manifests, locked } = Workspace::load();
    let check = |rule: &Rule| {
        let direct = &manifests[rule.name];
        rules::heavy_dependencies(rule, direct, &workspace::closure(direct, &manifests, &locked))
    };
    assert_none(RULES.iter().flat_map(check).collect());
}

#[test]
fn pure_crates_depend_on_data_types_only() {
    let workspace = Workspace::load();
    assert_none(
        RULES.iter().flat_map(|rule| rules::impure_dependencies(rule, &workspace.manifests[rule.name])).collect(),
    );
}

#[test]
fn pure_code_has_no_clock_no_files_and_no_unsafe() {
    let check = |rule: &'static Rule| {
        let sources = Workspace::sources(rule.name).into_iter();
        sources.flat_map(move |(path, text)| rules::impure_code(rule, &path, &text))
    };
    assert_none(RULES.iter().flat_map(check).collect());
}

#[test]
fn every_module_a_rule_names_exists() {
    for rule in RULES {
        let sources = Workspace::sources(rule.name);
        for module in rule.pure.iter().chain(rule.may_say_unsafe) {
            let is_there = sources.iter().any(|(path, _)| rules::is_in(path, module));
            assert!(is_there, "the rule of {} names src/{module}, which is not there", rule.name);
        }
    }
}

#[test]
fn pure_crates_forbid_unsafe() {
    let root = |rule: &Rule| {
        let (_, text) =
            Workspace::sources(rule.name).into_iter().find(|(path, _)| path == "lib.rs" || path == "main.rs")?;
        Some(rules::missing_forbid(rule, &text))
    };
    assert_none(RULES.iter().filter_map(root).flatten().collect());
}

#[test]
fn unsafe_stands_in_sys_modules_and_at_the_c_edge() {
    let check = |rule: &'static Rule| {
        let sources = Workspace::sources(rule.name).into_iter();
        sources.flat_map(move |(path, text)| rules::stray_unsafe(rule, &path, &text))
    };
    assert_none(RULES.iter().flat_map(check).collect());
}

#[test]
fn every_file_says_what_it_is() {
    let check = |rule: &'static Rule| {
        let sources = Workspace::sources(rule.name).into_iter();
        sources.flat_map(move |(path, text)| rules::missing_header(rule, &path, &text))
    };
    assert_none(RULES.iter().flat_map(check).collect());
}
