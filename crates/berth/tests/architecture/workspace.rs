//! The workspace as it stands on disk: manifests, lock file, sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates a manifest names outside of tests, on any target. Optional ones are left out: a feature is the choice of
/// whoever turns it on.
pub fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
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
pub fn closure(
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
pub fn parse_lock(text: &str) -> BTreeMap<String, BTreeSet<String>> {
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

pub struct Workspace {
    pub manifests: BTreeMap<String, BTreeSet<String>>,
    pub locked: BTreeMap<String, BTreeSet<String>>,
}

impl Workspace {
    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/berth is two below the root").to_owned()
    }

    pub fn load() -> Self {
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
    pub fn sources(name: &str) -> Vec<(String, String)> {
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

mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_dependency_of_any_kind_is_seen() {
        let manifest = "[dependencies]\na = '1'\no = { version = '1', optional = true }\n\
                        x = { package = 'b', version = '1' }\n[build-dependencies]\nc = '1'\n\
                        [target.'cfg(unix)'.dependencies]\nd = '1'\n[dev-dependencies]\ne = '1'";
        assert_eq!(dependencies(&toml::from_str(manifest).unwrap()), names(&["a", "b", "c", "d"]));
    }

    #[test]
    fn the_closure_goes_through_own_crates_and_the_lock_file() {
        let lock = "[[package]]\nname = 'thin'\ndependencies = ['middle 1.0.0']\n\
                    [[package]]\nname = 'middle'\ndependencies = ['tokio']";
        let own = BTreeMap::from([("berth-proto".to_owned(), names(&["thin"]))]);
        let all = closure(&names(&["berth-proto"]), &own, &parse_lock(lock));
        assert_eq!(all, names(&["berth-proto", "thin", "middle", "tokio"]));
    }
}
