//! berth by the name `kubectl-berth`.

use std::process::{Command, Output};

fn plugin(args: &[&str], kubeconfig: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("kubectl-berth");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_berth"), &name).unwrap();
    Command::new(name).args(args).env("KUBECONFIG", kubeconfig).output().unwrap()
}

#[test]
fn its_help_is_that_of_a_plugin() {
    let output = plugin(&["--help"], "");
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(help.contains("Usage: kubectl berth") && help.contains("why") && !help.contains("daemon"), "{help}");
}

#[test]
fn what_keeps_it_from_asking_is_told() {
    let output = plugin(&["nodes"], "/nonexistent/kubeconfig");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(told.starts_with("berth: finding the API server"), "{told}");
    assert_eq!(plugin(&["why"], "").status.code(), Some(2));
}
