//! Settings files: what is accepted, what is refused, and in which words.

use crate::run::berth;

#[test]
fn every_valid_file_is_accepted() {
    let files = toml_files("valid_configs");
    assert!(files.len() >= 4);
    for file in files {
        let run = berth(&["config", "check", &file]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{file}");
        assert!(run.stdout.contains("no mistakes"), "{}", run.stdout);
    }
}

/// `BERTH_UPDATE_EXPECTED=1` writes the files anew; review the difference.
#[test]
fn every_invalid_file_is_refused_with_exactly_the_expected_words() {
    let files = toml_files("invalid_configs");
    assert!(files.len() >= 15);
    for file in files {
        let run = berth(&["config", "check", &file]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{file}");
        let told = run.stderr.replace(&file, file.rsplit('/').next().unwrap());
        let expected_file = file.replace(".toml", ".expected");
        if std::env::var_os("BERTH_UPDATE_EXPECTED").is_some() {
            std::fs::write(&expected_file, &told).unwrap();
        }
        let expected = std::fs::read_to_string(&expected_file).unwrap_or_default();
        assert_eq!(told, expected, "{file}");
        assert!(told.starts_with("berth: ") && told.contains("line ") || told.contains("--set"), "no line: {told}");
    }
}

#[test]
fn the_printed_default_is_a_valid_file_that_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("berth.toml");
    std::fs::write(&file, berth(&["config", "default"]).ok()).unwrap();
    let file = file.to_str().unwrap();
    berth(&["config", "check", file]).ok();
    assert_eq!(berth(&["--config", file, "config", "print"]).ok(), berth(&["config", "print"]).ok());
}

#[test]
fn a_named_file_that_is_missing_is_an_error_of_the_settings() {
    let run = berth(&["--config", "/nowhere/b.toml", "ps"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.starts_with("berth: reading the settings in /nowhere/b.toml: No such file"), "{}", run.stderr);
}

#[test]
fn overrides_on_the_command_line_win_and_wrong_ones_are_named() {
    let printed = berth(&["config", "print", "--set", "table.rows=7", "--socket", "/tmp/x", "--log", "debug"]).ok();
    for line in ["rows = 7", "socket = \"/tmp/x\"", "level = \"debug\""] {
        assert!(printed.contains(line), "{line} is not in {printed}");
    }
    let run = berth(&["config", "print", "--set", "table.rows=many"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.starts_with("berth: --set table.rows=many: invalid type"), "{}", run.stderr);
}

fn toml_files(folder: &str) -> Vec<String> {
    let folder = format!("{}/tests/{folder}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .filter(|path| path.ends_with(".toml"))
        .collect();
    files.sort();
    files
}
