//! What may not be, as functions from plain data to complaints; each has a test that it can complain.

use std::collections::BTreeSet;
use std::path::Path;

use crate::source::{code, lines_with, without_tests};

/// What one crate may do.
pub struct Rule {
    pub name: &'static str,
    /// Crates of this workspace it may use. Arrows go down only.
    pub internal: &'static [&'static str],
    /// How near to it an async runtime, a server or a terminal may come.
    pub edge: Edge,
    /// Modules, as paths under `src/`, without clocks, files, sockets, threads, output or `unsafe`.
    pub pure: &'static [&'static str],
    /// Modules under `src/`, beside any `sys`, that may say `unsafe`.
    pub may_say_unsafe: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq)]
pub enum Edge {
    /// Talks to people, Docker or HTTP clients.
    Own,
    /// A plain thread: others may be async behind a crate it uses, it is not.
    Behind,
    /// Ends up in other people's processes, or must not wait for anyone.
    Never,
}

/// The whole of `src/`.
pub const ALL: &[&str] = &[""];

/// Async runtimes, servers, clients, terminals, argument parsers.
const EDGE_CRATES: &[&str] = &["tokio", "hyper", "axum", "bollard", "ratatui", "crossterm", "clap"];

/// What a pure crate may depend on: types and formats. Data and time come in as arguments.
const PURE_DEPENDENCIES: &[&str] = &["jiff", "serde", "thiserror"];

/// What pure code may not mention.
const IMPURE_WORDS: &[&str] = &[
    "Instant",
    "Timestamp::now",
    "Zoned::now",
    "SystemTime",
    "std::fs",
    "std::net",
    "std::env",
    "std::thread",
    "std::process",
    "std::os",
    "tokio",
    "libc",
    "rustix",
    "unsafe",
    "async",
    "print",
    "println",
    "eprint",
    "eprintln",
    "tracing",
];

/// Complaints of one rule about one crate, each a sentence.
pub type Complaints = Vec<String>;

pub fn foreign_edges(rule: &Rule, dependencies: &BTreeSet<String>) -> Complaints {
    let internal = dependencies.iter().filter(|name| *name == "berth" || name.starts_with("berth-"));
    internal
        .filter(|name| !rule.internal.contains(&name.as_str()))
        .map(|name| format!("{} may not depend on {name}: arrows go down only", rule.name))
        .collect()
}

/// `closure` is all that `direct` brings in.
pub fn heavy_dependencies(rule: &Rule, direct: &BTreeSet<String>, closure: &BTreeSet<String>) -> Complaints {
    let judged = match rule.edge {
        Edge::Own => return Vec::new(),
        Edge::Behind => direct,
        Edge::Never => closure,
    };
    let heavy = EDGE_CRATES.iter().filter(|name| judged.contains(**name));
    heavy.map(|name| format!("{} may not bring in {name}", rule.name)).collect()
}

pub fn impure_dependencies(rule: &Rule, dependencies: &BTreeSet<String>) -> Complaints {
    if rule.pure != ALL {
        return Vec::new();
    }
    dependencies
        .iter()
        .filter(|name| !PURE_DEPENDENCIES.contains(&name.as_str()) && !rule.internal.contains(&name.as_str()))
        .map(|name| format!("{} is pure and may not depend on {name}", rule.name))
        .collect()
}

/// Is the file at `path` the module or inside it? Both are relative to `src/`.
pub fn is_in(path: &str, module: &str) -> bool {
    Path::new(path).with_extension("").starts_with(module)
}

pub fn impure_code(rule: &Rule, path: &str, text: &str) -> Complaints {
    if !rule.pure.iter().any(|module| is_in(path, module)) {
        return Vec::new();
    }
    mentions(text, IMPURE_WORDS)
        .map(|(word, line)| format!("{}/src/{path}:{line}: pure code says `{word}`", rule.name))
        .collect()
}

pub fn stray_unsafe(rule: &Rule, path: &str, text: &str) -> Complaints {
    let is_sys = Path::new(path).with_extension("").components().any(|part| part.as_os_str() == "sys");
    if is_sys || rule.may_say_unsafe.iter().any(|module| is_in(path, module)) {
        return Vec::new();
    }
    mentions(text, &["unsafe"])
        .map(|(_, line)| format!("{}/src/{path}:{line}: `unsafe` belongs in a `sys` module", rule.name))
        .collect()
}

pub fn missing_forbid(rule: &Rule, root: &str) -> Complaints {
    if rule.pure == ALL && lines_with(&code(root), "#![forbid(unsafe_code)]").is_empty() {
        return vec![format!("{} is pure and its lib.rs must say #![forbid(unsafe_code)]", rule.name)];
    }
    Vec::new()
}

pub fn missing_header(rule: &Rule, path: &str, text: &str) -> Complaints {
    if text.starts_with("//!") {
        return Vec::new();
    }
    vec![format!("{}/src/{path}: begins without a `//!` header that says what it is", rule.name)]
}

fn mentions<'a>(text: &str, words: &'a [&str]) -> impl Iterator<Item = (&'a str, usize)> {
    let text = without_tests(&code(text));
    words.iter().flat_map(move |word| lines_with(&text, word).into_iter().map(move |line| (*word, line)))
}

/// Each rule on an input that breaks it: a rule that cannot complain holds nothing.
mod rules_can_fail {
    use super::*;
    use crate::RULES;

    fn rule(name: &str) -> &'static Rule {
        RULES.iter().find(|rule| rule.name == name).expect("a rule of that name")
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_arrow_that_goes_up_is_seen() {
        assert_eq!(foreign_edges(rule("berth-host"), &names(&["berth-engine", "berth-model", "libc"])).len(), 1);
        assert_eq!(foreign_edges(rule("berth-api"), &names(&["berth"])).len(), 1);
    }

    #[test]
    fn a_runtime_is_seen_where_it_may_not_come() {
        let complaints = |name, direct: &[&str], closure: &[&str]| {
            heavy_dependencies(rule(name), &names(direct), &names(closure)).len()
        };
        assert_eq!(complaints("berth-sim-cuda", &["thin"], &["thin", "tokio"]), 1);
        assert_eq!(complaints("berth-engine", &["tokio"], &["tokio"]), 1);
        assert_eq!(complaints("berth-engine", &["berth-host"], &["berth-host", "tokio"]), 0);
        assert_eq!(complaints("berth-api", &["tokio"], &["tokio"]), 0);
    }

    #[test]
    fn a_pure_crate_with_a_system_crate_is_seen() {
        assert_eq!(impure_dependencies(rule("berth-model"), &names(&["serde", "libc"])).len(), 1);
    }

    #[test]
    fn a_clock_a_file_a_thread_and_output_are_seen() {
        let complaints = |text: &str| impure_code(rule("berth-model"), "task/life.rs", text).len();
        assert_eq!(complaints("use std::time::{Duration, Instant};"), 1);
        assert_eq!(complaints("let t = std::time::SystemTime::now();"), 1);
        assert_eq!(complaints("use std::{collections::BTreeMap, fs};"), 1);
        assert_eq!(complaints("std::thread::spawn(f);"), 1);
        assert_eq!(complaints("println!();"), 1);
        assert_eq!(complaints("unsafe { f() }"), 1);
        assert_eq!(complaints("use std::time::Duration; // an Instant would be a clock"), 0);
    }

    #[test]
    fn only_the_pure_parts_of_a_mixed_crate_are_judged() {
        assert_eq!(impure_code(rule("berth-sim"), "engine/gpu.rs", "use std::fs;").len(), 1);
        assert_eq!(impure_code(rule("berth-sim"), "server.rs", "use std::fs;").len(), 0);
    }

    #[test]
    fn unsafe_outside_its_places_is_seen() {
        let complaints = |name: &str, path: &str| stray_unsafe(rule(name), path, "fn f() { unsafe { g() } }").len();
        assert_eq!(complaints("berth-host", "nvml.rs"), 1);
        assert_eq!(complaints("berth-host", "system.rs"), 1);
        assert_eq!(complaints("berth-host", "nvml/sys.rs"), 0);
        assert_eq!(complaints("berth-host", "procs/sys/netlink.rs"), 0);
        assert_eq!(complaints("berth-proto", "table/sys.rs"), 0);
        assert_eq!(complaints("berth-proto", "table/seqlock.rs"), 1);
        assert_eq!(complaints("berth-sim-cuda", "edge.rs"), 0);
    }

    #[test]
    fn a_missing_forbid_and_a_missing_header_are_seen() {
        assert_eq!(missing_forbid(rule("berth-model"), "//! x\n// #![forbid(unsafe_code)]").len(), 1);
        assert_eq!(missing_forbid(rule("berth-model"), "//! x\n#![forbid(unsafe_code)]").len(), 0);
        assert_eq!(missing_header(rule("berth"), "main.rs", "fn main() {}").len(), 1);
    }
}
