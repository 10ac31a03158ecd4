//! The workload as a process, on a driver library that does nothing: the C edge, exit codes, signals.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use berth_load::{Edge, Event, Line, Moment, Phase};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;

/// A compiled fake library in a directory of its own.
struct Fake {
    dir: TempDir,
}

impl Fake {
    /// With these `--cfg` flags.
    fn build(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/libcuda.rs");
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "--crate-name", "cuda", "--crate-type", "cdylib", "-A", "warnings", "-o"]);
        rustc.arg(dir.path().join("libcuda.so.1")).arg(source);
        rustc.args(flags.iter().flat_map(|flag| ["--cfg", flag]));
        assert!(rustc.status().unwrap().success(), "the fake library does not compile");
        Self { dir }
    }

    fn library(&self) -> PathBuf {
        self.dir.path().join("libcuda.so.1")
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth-load"));
        command.args(line.split_whitespace()).arg("--library").arg(self.library());
        command.env("FAKE_CUDA_LOG", self.dir.path().join("log"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// The calls made since the last look.
    fn calls(&self) -> Vec<String> {
        let path = self.dir.path().join("log");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

fn events(output: &Output) -> Vec<Event> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap().event).collect()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Reads the child's lines up to the one wanted.
fn read_until(child: &mut Child, wanted: impl Fn(&Event) -> bool) -> BufReader<std::process::ChildStdout> {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the run ended before the line wanted");
        if wanted(&serde_json::from_str::<Line>(&line).unwrap().event) {
            return reader;
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn product_reaches_the_driver_with_the_right_numbers() {
    let fake = Fake::build(&["entry_v2"]);
    let output = fake.run("-n 100 --repeats 2");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let calls = fake.calls();
    let count = |call: &str| calls.iter().filter(|made| *made == call).count();
    assert_eq!(count("cuMemAlloc 40000"), 3);
    assert_eq!(count("cuMemcpyHtoD 40000"), 2);
    assert_eq!(count("cuLaunchKernel 7x7x1 16x16x1 n=100"), 2);
    assert_eq!(count("cuMemcpyDtoH 40000"), 1);
    assert_eq!(calls.last().unwrap(), "cuCtxDestroy");
    let Some(Event::Summary(summary)) = events(&output).pop() else { panic!("the last line is no summary") };
    assert_eq!((summary.exit_code, summary.tasks[0].rounds), (0, 2));
}

#[test]
fn functions_are_found_in_the_way_asked_for() {
    let asked = |calls: &[String]| calls.iter().filter(|call| call.starts_with("cuGetProcAddress")).count();
    for entry in ["entry_v1", "entry_v2"] {
        let fake = Fake::build(&[entry]);
        for (lookup, by_entry) in [("auto", true), ("proc-address", true), ("dlsym", false)] {
            let output = fake.run(&format!("-n 4 --lookup {lookup}"));
            assert_eq!(output.status.code(), Some(0), "{entry} {lookup}: {}", stderr(&output));
            assert_eq!(asked(&fake.calls()) > 0, by_entry, "{entry} {lookup}");
        }
    }
}

#[test]
fn old_library_without_the_entry_is_used_by_symbols() {
    let fake = Fake::build(&[]);
    assert_eq!(fake.run("-n 4").status.code(), Some(0));
    let output = fake.run("-n 4 --lookup proc-address");
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("has no cuGetProcAddress"), "{}", stderr(&output));
}

#[test]
fn missing_library_says_what_was_tried_and_how_to_get_one() {
    let output = Command::new(env!("CARGO_BIN_EXE_berth-load")).args(["--library", "/nowhere/libcuda.so.1"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(3));
    let message = stderr(&output);
    for part in ["/nowhere/libcuda.so.1", "No such file", "berth sim serve"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(matches!(events(&output).last(), Some(Event::Summary(summary)) if summary.exit_code == 3));
}

#[test]
fn library_that_is_no_driver_is_refused_by_name() {
    let output = Command::new(env!("CARGO_BIN_EXE_berth-load")).args(["--library", "libc.so.6"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("libc.so.6 has no cuInit"), "{}", stderr(&output));
}

#[test]
fn out_of_memory_is_named_with_its_phase() {
    let fake = Fake::build(&["entry_v2"]);
    let output = fake.run("-n 4 --alloc-bytes 2GiB");
    assert_eq!(output.status.code(), Some(1));
    let expected = "in phase alloc: cuMemAlloc failed with CUDA_ERROR_OUT_OF_MEMORY (2)";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    let calls = fake.calls();
    assert_eq!(calls.iter().filter(|call| *call == "cuMemFree").count(), 3, "the matrices are given back");
}

#[test]
fn no_such_device_is_told_apart_from_a_failing_call() {
    let fake = Fake::build(&["entry_v2"]);
    assert_eq!(fake.run("-n 4 --device 1").status.code(), Some(3));
    assert_eq!(fake.command("-n 4").env("FAKE_CUDA_FAIL", "cuInit").status().unwrap().code(), Some(3));
    assert_eq!(fake.command("-n 4").env("FAKE_CUDA_FAIL", "cuLaunchKernel").status().unwrap().code(), Some(1));
}

#[test]
fn wrong_options_and_outputs_end_with_usage() {
    let fake = Fake::build(&[]);
    for line in ["-n 0", "--output /nowhere/lines", "hold --fail-at kernel", "--no-such-flag"] {
        assert_eq!(fake.run(line).status.code(), Some(2), "{line}");
    }
}

#[test]
fn lines_can_go_to_a_file() {
    let fake = Fake::build(&[]);
    let path = fake.dir.path().join("lines");
    for _ in 0..2 {
        let output = fake.run(&format!("-n 4 --output {}", path.display()));
        assert!(output.stdout.is_empty());
    }
    let text = std::fs::read_to_string(path).unwrap();
    let starts = text.lines().filter(|line| line.contains(r#""event":"start""#)).count();
    assert_eq!(starts, 2, "a second run appends");
}

#[test]
fn lines_nobody_can_take_are_admitted() {
    let fake = Fake::build(&[]);
    let output = fake.run("-n 4 --output /dev/full");
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("cannot write lines"), "{}", stderr(&output));
}

#[test]
fn each_way_to_fail_looks_so_from_outside() {
    let fake = Fake::build(&["entry_v2"]);
    let cases = [
        ("error", Some(1), None),
        ("exit", Some(0), None),
        ("abort", None, Some(SIGABRT)),
        ("kill", None, Some(SIGKILL)),
    ];
    for (how, code, by_signal) in cases {
        fake.calls();
        let output = fake.run(&format!("-n 4 --fail-at kernel --fail-how {how}"));
        assert_eq!((output.status.code(), output.status.signal()), (code, by_signal), "{how}");
        let calls = fake.calls();
        assert!(!calls.iter().any(|call| call == "cuStreamSynchronize"), "{how} fails while the kernel runs");
        assert_eq!(calls.iter().any(|call| call == "cuCtxDestroy"), how == "error", "{how}");
        let exit = Event::Moment { moment: Moment::Exit, edge: Edge::Begin, repeat: None };
        assert!(events(&output).contains(&exit), "{how} says when it ended");
    }
}

#[test]
fn hanging_run_keeps_what_it_holds_until_it_is_killed() {
    let fake = Fake::build(&[]);
    let mut child = fake.command("-n 4 --fail-at input --fail-how hang").spawn().unwrap();
    let _lines = read_until(&mut child, |event| matches!(event, Event::Error { phase: Phase::Input, .. }));
    signal(&child, Signal::KILL);
    assert_eq!(child.wait().unwrap().signal(), Some(SIGKILL));
    assert!(!fake.calls().iter().any(|call| call == "cuMemFree"));
}

#[test]
fn signals_end_a_run_cleanly() {
    let fake = Fake::build(&["entry_v2"]);
    for asked in [Signal::TERM, Signal::INT] {
        let mut child = fake.command("hold --alloc-bytes 1MiB --hold forever").spawn().unwrap();
        let holding = Event::Phase { phase: Phase::Hold, edge: Edge::Begin, repeat: None };
        let lines = read_until(&mut child, |event| *event == holding);
        signal(&child, asked);
        let rest: Vec<Event> =
            lines.lines().map(|line| serde_json::from_str::<Line>(&line.unwrap()).unwrap().event).collect();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(rest[0], Event::Stopped { phase: Some(Phase::Hold) });
        assert!(rest.iter().any(|event| matches!(event, Event::Moment { moment: Moment::ContextGone, .. })));
        assert!(matches!(rest.last(), Some(Event::Summary(summary)) if summary.exit_code == 0));
        let calls = fake.calls();
        assert!(calls.ends_with(&["cuMemFree", "cuStreamDestroy", "cuModuleUnload", "cuCtxDestroy"].map(String::from)));
    }
}
