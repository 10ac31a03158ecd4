//! The binary as people run it: output, errors, exit codes; without a daemon here, with one in `cli/daemon.rs`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "cli/cluster_key.rs"]
mod cluster_key;
#[path = "cli/config.rs"]
mod config;
#[path = "cli/daemon.rs"]
mod daemon;
#[path = "cli/kubectl.rs"]
mod kubectl;
#[path = "cli/placer.rs"]
mod placer;
#[path = "cli/run.rs"]
mod run;

use run::{Run, berth, dir_named};

#[test]
fn a_wrong_command_line_has_code_2_and_shows_the_usage() {
    for args in [&["frobnicate"][..], &["ps", "--gpu", "first"], &["ps", "--watch", "2"], &[]] {
        let run = berth(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains("--help") || run.stderr.contains("Usage"), "{}", run.stderr);
    }
}

#[test]
fn top_without_a_terminal_says_what_to_use_instead() {
    let run = berth(&["top"]);
    assert_eq!(run.code, 1);
    assert_eq!(run.stderr, "berth: top needs a terminal: use `berth ps --watch` for a file or a pipe\n");
}

#[test]
fn a_library_that_is_no_nvml_is_told_and_an_empty_answer_has_a_code_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, library) = (dir_named(&dir, "s"), dir_named(&dir, "libnvidia-ml.so.1"));
    std::fs::write(&library, "not a library").unwrap();
    let set = format!("nvml.library={library}");
    let run = berth(&["--socket", &socket, "--set", &set, "--set", "docker.mode=off", "ps"]);
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert_eq!(run.stdout.lines().count(), 1, "a heading and nobody: {}", run.stdout);
    assert!(run.stderr.contains("no GPU can be seen") && run.stderr.contains(&library), "{}", run.stderr);
    assert!(!run.stderr.contains("nobody uses"), "{}", run.stderr);
    let run = berth(&["--socket", &socket, "--set", &set, "--set", "docker.mode=off", "ps", "--json"]);
    assert_eq!((run.code, run.stdout.trim()), (3, "[]"));
    assert!(run.stderr.contains("no GPU can be seen"), "{}", run.stderr);
}

#[test]
fn a_look_without_the_engine_that_is_required_fails() {
    let set = ["docker.mode=required", "docker.socket=/nowhere/docker.sock"].map(|set| format!("--set={set}"));
    let run = berth(&["--socket", "/nowhere/berth.sock", &set[0], &set[1], "ps", "--json"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    assert!(run.stderr.contains("docker is required") && run.stderr.contains("/nowhere/docker.sock"), "{}", run.stderr);
}

#[test]
fn doctor_without_a_gpu_has_code_1_and_names_the_remedy() {
    let set = ["--set", "nvml.library=/nowhere/libnvidia-ml.so.1", "--set", "docker.socket=/nowhere/docker.sock"];
    let run = berth(&[&set[..], &["doctor"]].concat());
    assert_eq!(run.code, 1, "{}", run.stderr);
    let line = |name: &str| run.stdout.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("observe").contains("missing") && line("observe").contains("/nowhere"), "{}", run.stdout);
    assert!(line("Docker").contains("/nowhere/docker.sock"), "{}", run.stdout);

    let run = berth(&[&set[..], &["doctor", "--json"]].concat());
    assert_eq!(run.code, 1);
    let reports: Vec<serde_json::Value> = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(reports[0]["subject"]["level"], "observe");
    assert_eq!(reports[0]["status"], "missing");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let run = Run::shell("\"$BERTH\" config default | head -n 1; echo \"codes ${PIPESTATUS[*]}\"");
    assert!(run.stdout.ends_with("codes 0 0\n"), "{}", run.stdout);
    assert_eq!(run.stderr, "");
}

#[test]
fn a_full_disk_is_an_error() {
    let run = Run::shell("\"$BERTH\" config default > /dev/full");
    assert_eq!(run.code, 1);
    assert!(run.stderr.starts_with("berth: writing to standard output: "), "{}", run.stderr);
}

#[test]
fn holding_without_a_daemon_says_who_could_and_a_wrong_command_line_is_no_attempt() {
    for args in
        [&["hold", "x"][..], &["release", "x"], &["explain", "x"], &["policy", "show"], &["policy", "set", "off"]]
    {
        let run = berth(&[&["--socket", "/nowhere/berth.sock"], args].concat());
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains("/nowhere/berth.sock") && run.stderr.contains("berth daemon"), "{}", run.stderr);
    }
    for args in [
        &["hold"][..],
        &["hold", "x", "--by", "magic"],
        &["release"],
        &["release", "x", "--all"],
        &["release", "--all", "--to-policy"],
        &["release", "x", "--force"],
        &["release", "x", "--within", "2s"],
        &["policy", "set", "lifo"],
    ] {
        assert_eq!(berth(args).code, 2, "{args:?}");
    }
}

#[test]
fn completions_of_every_shell_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = berth(&["completions", shell]).ok();
        let known = ["doctor", "no-trunc", "explain", "to-policy", "policy"];
        assert!(known.iter().all(|word| script.contains(word)), "{shell}");
    }
}

#[test]
fn bench_edf_needs_nothing_of_the_host_and_misses_no_more_than_the_best_order() {
    let run = berth(&["bench", "edf", "--quick", "--part", "together", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let together = &report["together"];
    assert_eq!(together["edf_misses"], together["solver_misses"], "{together}");
    assert!(together["cases"].as_u64() == Some(10) && together["solver_misses"].as_u64() > Some(0), "{together}");
    assert_eq!(report["goals"][0]["verdict"], "met", "{report}");
}
