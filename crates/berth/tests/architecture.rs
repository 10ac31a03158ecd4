//! The shape of the workspace, held by a test: who may depend on whom, which code is pure, where `unsafe` may stand.
//!
//! Manifests are read as TOML, sources as text (see `architecture/source.rs`). Test code is not judged: a test may look
//! at anything. Each rule is a function from plain data to a list of complaints, and has a test that it can complain.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "architecture/source.rs"]
mod source;

use source::{code, lines_with, without_tests};

/// What one crate may do. The table below is the architecture; a new crate needs a line in it.
struct Rule {
    name: &'static str,
    /// Crates of this workspace it may use. Arrows go down only.
    internal: &'static [&'static str],
    /// May its dependencies, direct or not, hold an async runtime, a server or a terminal?
    edge: Edge,
    /// Modules, as paths under `src/`, without clocks, files, sockets, threads, output or `unsafe`.
    pure: &'static [&'static str],
    /// Modules under `src/`, beside any `sys`, that may say `unsafe`.
    may_say_unsafe: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq)]
enum Edge {
    /// Talks to people, Docker or HTTP clients.
    Yes,
    /// Ends up in other people's processes, or must not wait for anyone.
    No,
}

/// The whole of `src/`.
const ALL: &[&str] = &[""];

const RULES: &[Rule] = &[
    Rule { name: "berth-model", internal: &[], edge: Edge::No, pure: ALL, may_say_unsafe: &[] },
    // The table maps memory that other programs read: its atomics live behind raw pointers.
    Rule { name: "berth-proto", internal: &["berth-model"], edge: Edge::No, pure: &[], may_say_unsafe: &["table"] },
    Rule { name: "berth-host", internal: &["berth-model"], edge: Edge::Yes, pure: &[], may_say_unsafe: &[] },
    Rule {
        name: "berth-engine",
        internal: &["berth-model", "berth-proto", "berth-host"],
        edge: Edge::Yes,
        pure: &[],
        may_say_unsafe: &[],
    },
    Rule {
        name: "berth-api",
        internal: &["berth-model", "berth-proto"],
        edge: Edge::Yes,
        pure: &[],
        may_say_unsafe: &[],
    },
    Rule {
        name: "berth-sim",
        internal: &["berth-proto"],
        edge: Edge::No,
        pure: &["engine", "fault", "scenario"],
        may_say_unsafe: &[],
    },
    // Shared libraries with a C interface: every exported function is an edge.
    Rule { name: "berth-sim-cuda", internal: &["berth-proto"], edge: Edge::No, pure: &[], may_say_unsafe: ALL },
    Rule { name: "berth-sim-nvml", internal: &["berth-proto"], edge: Edge::No, pure: &[], may_say_unsafe: ALL },
    Rule { name: "berth-load", internal: &["berth-proto"], edge: Edge::No, pure: &[], may_say_unsafe: &[] },
    Rule {
        name: "berth",
        internal: &["berth-model", "berth-proto", "berth-host", "berth-engine", "berth-api", "berth-sim", "berth-load"],
        edge: Edge::Yes,
        pure: &[],
        may_say_unsafe: &[],
    },
];

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
type Complaints = Vec<String>;

fn foreign_edges(rule: &Rule, dependencies: &BTreeSet<String>) -> Complaints {
    let internal = dependencies.iter().filter(|name| *name == "berth" || name.starts_with("berth-"));
    internal
        .filter(|name| !rule.internal.contains(&name.as_str()))
        .map(|name| format!("{} may not depend on {name}: arrows go down only", rule.name))
        .collect()
}

fn heavy_dependencies(rule: &Rule, closure: &BTreeSet<String>) -> Complaints {
    if rule.edge == Edge::Yes {
        return Vec::new();
    }
    EDGE_CRATES
        .iter()
        .filter(|name| closure.contains(**name))
        .map(|name| format!("{} may not bring in {name}, not even through another crate", rule.name))
        .collect()
}

fn impure_dependencies(rule: &Rule, dependencies: &BTreeSet<String>) -> Complaints {
    if rule.pure != ALL {
        return Vec::new();
    }
    dependencies
        .iter()
        .filter(|name| !PURE_DEPENDENCIES.contains(&name.as_str()))
        .map(|name| format!("{} is pure and may not depend on {name}", rule.name))
        .collect()
}

/// Is the file at `path` the module or inside it? Both are relative to `src/`.
fn is_in(path: &str, module: &str) -> bool {
    Path::new(path).with_extension("").starts_with(module)
}

fn impure_code(rule: &Rule, path: &str, text: &str) -> Complaints {
    if !rule.pure.iter().any(|module| is_in(path, module)) {
        return Vec::new();
    }
    mentions(text, IMPURE_WORDS)
        .map(|(word, line)| format!("{}/src/{path}:{line}: pure code says `{word}`", rule.name))
        .collect()
}

fn stray_unsafe(rule: &Rule, path: &str, text: &str) -> Complaints {
    let is_sys = Path::new(path).with_extension("").components().any(|part| part.as_os_str() == "sys");
    if is_sys || rule.may_say_unsafe.iter().any(|module| is_in(path, module)) {
        return Vec::new();
    }
    mentions(text, &["unsafe"])
        .map(|(_, line)| format!("{}/src/{path}:{line}: `unsafe` belongs in a `sys` module", rule.name))
        .collect()
}

fn missing_forbid(rule: &Rule, root: &str) -> Complaints {
    if rule.pure == ALL && lines_with(&code(root), "#![forbid(unsafe_code)]").is_empty() {
        return vec![format!("{} is pure and its lib.rs must say #![forbid(unsafe_code)]", rule.name)];
    }
    Vec::new()
}

fn missing_header(rule: &Rule, path: &str, text: &str) -> Complaints {
    if text.starts_with("//!") {
        return Vec::new();
    }
    vec![format!("{}/src/{path}: begins without a `//!` header that says what it is", rule.name)]
}

fn mentions<'a>(text: &str, words: &'a [&str]) -> impl Iterator<Item = (&'a str, usize)> {
    let text = without_tests(&code(text));
    words.iter().flat_map(move |word| lines_with(&text, word).into_iter().map(move |line| (*word, line)))
}

/// The crates a manifest names outside of tests, on any target. Optional ones are left out: a feature is the choice of
/// whoever turns it on.
fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let of = |table: &toml::Table| -> Vec<String> {
        ["dependencies", "build-dependencies"]
            .iter()
            .filter_map(|key| table.get(*key)?.as_table())
            .flat_map(|section| section.iter().filter(|(_, value)| !is_optional(value)))
            .map(|(name, value)| package_name(name, value))
            .collect()
    };
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let per_target = targets.into_iter().flat_map(|targets| targets.values().filter_map(toml::Value::as_table));
    per_target.chain([manifest]).flat_map(of).collect()
}

fn is_optional(value: &toml::Value) -> bool {
    value.get("optional").and_then(toml::Value::as_bool) == Some(true)
}

/// A dependency may be renamed; `package` then holds its true name.
fn package_name(name: &str, value: &toml::Value) -> String {
    value.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned()
}

/// Everything `direct` brings in, by the lock file. Crates of this workspace are entered through their own manifests,
/// since the lock file does not tell their test dependencies apart.
fn closure(
    direct: &BTreeSet<String>,
    own: &BTreeMap<String, BTreeSet<String>>,
    locked: &BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<String> = direct.iter().cloned().collect();
    while let Some(name) = open.pop() {
        let next = own.get(&name).or_else(|| locked.get(&name));
        if seen.insert(name) {
            open.extend(next.into_iter().flatten().cloned());
        }
    }
    seen
}

/// Package name to the names it depends on; versions of one name are merged.
fn parse_lock(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let lock: toml::Table = toml::from_str(text).expect("Cargo.lock is TOML");
    let packages = lock.get("package").and_then(toml::Value::as_array).expect("Cargo.lock lists packages");
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().expect("a package has a name").to_owned();
        let needs = package.get("dependencies").and_then(toml::Value::as_array);
        // "name", or "name version" where the name alone is ambiguous
        let names = needs.into_iter().flatten().filter_map(|need| need.as_str()?.split(' ').next()).map(str::to_owned);
        graph.entry(name).or_default().extend(names);
    }
    graph
}

struct Workspace {
    manifests: BTreeMap<String, BTreeSet<String>>,
    locked: BTreeMap<String, BTreeSet<String>>,
}

impl Workspace {
    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/berth is two below the root").to_owned()
    }

    fn load() -> Self {
        let read = |path: PathBuf| fs::read_to_string(&path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()));
        let crates = fs::read_dir(Self::root().join("crates")).expect("crates/ is a directory");
        let manifests = crates
            .map(|entry| entry.expect("crates/ can be listed").path().join("Cargo.toml"))
            .filter(|path| path.exists())
            .map(|path| {
                let manifest: toml::Table = toml::from_str(&read(path)).expect("a manifest is TOML");
                let name = manifest["package"]["name"].as_str().expect("a package has a name").to_owned();
                (name, dependencies(&manifest))
            })
            .collect();
        Self { manifests, locked: parse_lock(&read(Self::root().join("Cargo.lock"))) }
    }

    /// Sources of a crate without its tests: path under `src/`, text.
    fn sources(name: &str) -> Vec<(String, String)> {
        let src = Self::root().join("crates").join(name).join("src");
        let mut open = vec![src.clone()];
        let mut files = Vec::new();
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(&path).expect("src/ can be listed").map(|e| e.expect("an entry").path()));
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test(&path) {
                let relative = path.strip_prefix(&src).expect("found under src/").display().to_string();
                files.push((relative, fs::read_to_string(&path).expect("a source file is text")));
            }
        }
        files
    }
}

fn is_test(path: &Path) -> bool {
    path.with_extension("").components().any(|part| part.as_os_str() == "tests")
}

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
    assert_none(RULES.iter().flat_map(|rule| foreign_edges(rule, &workspace.manifests[rule.name])).collect());
}

#[test]
fn runtimes_and_servers_stay_at_the_edges() {
    let Workspace { manifests, locked } = Workspace::load();
    let check = |rule: &Rule| heavy_dependencies(rule, &closure(&manifests[rule.name], &manifests, &locked));
    assert_none(RULES.iter().flat_map(check).collect());
}

#[test]
fn pure_crates_depend_on_data_types_only() {
    let workspace = Workspace::load();
    assert_none(RULES.iter().flat_map(|rule| impure_dependencies(rule, &workspace.manifests[rule.name])).collect());
}

#[test]
fn pure_code_has_no_clock_no_files_and_no_unsafe() {
    let check = |rule: &'static Rule| {
        let sources = Workspace::sources(rule.name).into_iter();
        sources.flat_map(move |(path, text)| impure_code(rule, &path, &text))
    };
    assert_none(RULES.iter().flat_map(check).collect());
}

#[test]
fn every_module_a_rule_names_exists() {
    for rule in RULES {
        let sources = Workspace::sources(rule.name);
        for module in rule.pure.iter().chain(rule.may_say_unsafe) {
            let is_there = sources.iter().any(|(path, _)| is_in(path, module));
            assert!(is_there, "the rule of {} names src/{module}, which is not there", rule.name);
        }
    }
}

#[test]
fn pure_crates_forbid_unsafe() {
    let root = |rule: &Rule| {
        let (_, text) =
            Workspace::sources(rule.name).into_iter().find(|(path, _)| path == "lib.rs" || path == "main.rs")?;
        Some(missing_forbid(rule, &text))
    };
    assert_none(RULES.iter().filter_map(root).flatten().collect());
}

#[test]
fn unsafe_stands_in_sys_modules_and_at_the_c_edge() {
    let check = |rule: &'static Rule| {
        let sources = Workspace::sources(rule.name).into_iter();
        sources.flat_map(move |(path, text)| stray_unsafe(rule, &path, &text))
    };
    assert_none(RULES.iter().flat_map(check).collect());
}

#[test]
fn every_file_says_what_it_is() {
    let check = |rule: &'static Rule| {
        let sources = Workspace::sources(rule.name).into_iter();
        sources.flat_map(move |(path, text)| missing_header(rule, &path, &text))
    };
    assert_none(RULES.iter().flat_map(check).collect());
}

/// Each rule on an input that breaks it: a rule that cannot complain holds nothing.
mod rules_can_fail {
    use super::*;

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
    fn a_dependency_of_any_kind_is_seen() {
        let manifest = "[dependencies]\na = '1'\no = { version = '1', optional = true }\nx = { package = 'b', version = '1' }\n[build-dependencies]\nc = '1'\n\
                        [target.'cfg(unix)'.dependencies]\nd = '1'\n[dev-dependencies]\ne = '1'";
        assert_eq!(dependencies(&toml::from_str(manifest).unwrap()), names(&["a", "b", "c", "d"]));
    }

    #[test]
    fn a_runtime_behind_another_crate_is_seen() {
        let lock = "[[package]]\nname = 'thin'\ndependencies = ['middle 1.0.0']\n[[package]]\nname = 'middle'\ndependencies = ['tokio']";
        let all = closure(
            &names(&["berth-proto"]),
            &BTreeMap::from([("berth-proto".into(), names(&["thin"]))]),
            &parse_lock(lock),
        );
        assert_eq!(heavy_dependencies(rule("berth-sim-cuda"), &all).len(), 1);
        assert!(heavy_dependencies(rule("berth-api"), &all).is_empty());
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
        assert_eq!(complaints("berth-proto", "table/lock.rs"), 0);
        assert_eq!(complaints("berth-proto", "wire.rs"), 1);
    }

    #[test]
    fn a_missing_forbid_and_a_missing_header_are_seen() {
        assert_eq!(missing_forbid(rule("berth-model"), "//! x\n// #![forbid(unsafe_code)]").len(), 1);
        assert_eq!(missing_forbid(rule("berth-model"), "//! x\n#![forbid(unsafe_code)]").len(), 0);
        assert_eq!(missing_header(rule("berth"), "main.rs", "fn main() {}").len(), 1);
    }
}
