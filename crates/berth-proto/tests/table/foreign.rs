//! The table as programs in other languages see it: the C header, the C example, the Python example.

use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use berth_proto::table::{
    Deadline, Due, RawHeader, RawRow, Risk, Row, State, Tenant, Unit, Writer, flag, header_flag, monotonic_ns,
};

use crate::support::{Other, directory, eventually, path_in, row_of, stamp};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn compile(source: &Path, program: &Path) {
    let output = Command::new("cc")
        .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(repository().join("include"))
        .args(["-o".as_ref(), program.as_os_str(), source.as_os_str()])
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A line of C that prints a field, and the line that Rust expects.
macro_rules! fields {
    ($c:literal, $rust:ty: $($field:ident)*) => {
        vec![$((
            format!("    printf(\"{0}.{1} %zu\\n\", offsetof(struct {0}, {1}));\n", $c, stringify!($field)),
            format!("{}.{} {}\n", $c, stringify!($field), offset_of!($rust, $field)),
        )),*, (
            format!("    printf(\"{0} %zu\\n\", sizeof(struct {0}));\n", $c),
            format!("{} {}\n", $c, size_of::<$rust>()),
        )]
    };
}

macro_rules! values {
    ($($c:literal = $rust:expr;)*) => {
        vec![$((
            format!("    printf(\"{0} %u\\n\", (unsigned){0});\n", $c),
            format!("{} {}\n", $c, $rust),
        )),*]
    };
}

fn layout() -> Vec<(String, String)> {
    let header = fields!("berth_table_header", RawHeader:
        magic version_major version_minor header_bytes row_bytes row_capacity writer_pid flags writer_start_ticks
        boot_id_hash writer_pid_namespace created_mono_ns sequence heartbeat_mono_ns closed heartbeat_interval_ns
        reserved_words row_count rows_left_out updated_mono_ns updated_wall_ns reserved);
    let row = fields!("berth_table_row", RawRow:
        flags tenant_kind runtime state core_pct gpu_index pid_count memory_bytes task_id task_started_mono_ns
        task_started_wall_ns uid process_kinds pids container_id name owner gpu_uuid deadline_ns due_mono_ns
        last_float_ns hits misses unknown unit risk reserved);
    let codes = values! {
        "BERTH_TABLE_VERSION_MAJOR" = berth_proto::table::VERSION_MAJOR;
        "BERTH_TABLE_VERSION_MINOR" = berth_proto::table::VERSION_MINOR;
        "BERTH_TABLE_HAS_START_TICKS" = header_flag::START_TICKS;
        "BERTH_TABLE_HAS_BOOT_ID" = header_flag::BOOT_ID;
        "BERTH_TABLE_HAS_PID_NAMESPACE" = header_flag::PID_NAMESPACE;
        "BERTH_ROW_HAS_CONTAINER_ID" = flag::CONTAINER_ID;
        "BERTH_ROW_HAS_OWNER" = flag::OWNER;
        "BERTH_ROW_HAS_GPU_INDEX" = flag::GPU_INDEX;
        "BERTH_ROW_HAS_GPU_UUID" = flag::GPU_UUID;
        "BERTH_ROW_HAS_MEMORY" = flag::MEMORY;
        "BERTH_ROW_HAS_CORE_PCT" = flag::CORE_PCT;
        "BERTH_ROW_HAS_TASK_ID" = flag::TASK_ID;
        "BERTH_ROW_HAS_TASK_STARTED" = flag::TASK_STARTED;
        "BERTH_ROW_HAS_UID" = flag::UID;
        "BERTH_ROW_HAS_DEADLINE" = flag::DEADLINE;
        "BERTH_ROW_HAS_DUE" = flag::DUE;
        "BERTH_ROW_HAS_LAST_FLOAT" = flag::LAST_FLOAT;
        "BERTH_ROW_TEXT_CUT" = flag::TEXT_CUT;
        "BERTH_UNIT_TASK" = Unit::Task as u8;
        "BERTH_UNIT_BURST" = Unit::Burst as u8;
        "BERTH_RISK_SAFE" = Risk::Safe as u8;
        "BERTH_RISK_TIGHT" = Risk::Tight as u8;
        "BERTH_RISK_LIKELY" = Risk::Likely as u8;
        "BERTH_RISK_LATE" = Risk::Late as u8;
        "BERTH_STATE_OPENING" = State::Opening as u8;
        "BERTH_STATE_LOADED" = State::Loaded as u8;
        "BERTH_STATE_COMPUTING" = State::Computing as u8;
        "BERTH_STATE_IDLE" = State::Idle as u8;
        "BERTH_STATE_LOST" = State::Lost as u8;
    };
    [header, row, codes].concat()
}

#[test]
fn the_c_header_has_every_field_and_code_where_rust_has_it() {
    let directory = directory();
    let (mut program, mut expected) = (String::from("#include <stdio.h>\n#include \"berth_table.h\"\n"), String::new());
    program.push_str("int main(void) {\n");
    for (c, rust) in layout() {
        program.push_str(&c);
        expected.push_str(&rust);
    }
    program.push_str("    return 0;\n}\n");
    let (source, binary) = (directory.path().join("offsets.c"), directory.path().join("offsets"));
    std::fs::write(&source, program).unwrap();
    compile(&source, &binary);
    assert_eq!(text(&Command::new(binary).output().unwrap().stdout), expected);
}

/// A machine that has just been started knows no earlier instant.
const LATE_NS: u64 = 20_000_000_000;

/// One row with everything known, late by some seconds; one with nothing; one whose name fills its field, between two bursts.
fn publish_examples(path: &Path) -> Writer {
    let mut writer = Writer::create(path, 8).unwrap();
    let due = Due { mono_ns: monotonic_ns().saturating_sub(LATE_NS), risk: Some(Risk::Late) };
    let late = Deadline { deadline_ns: 9_000_000_000, due: Some(due), hits: 12, misses: 2, ..Deadline::default() };
    let full =
        Row { gpu_index: Some(1), memory_bytes: Some(3 << 30), core_pct: Some(42), deadline: Some(late), ..row_of(1) };
    let idle = Some(Deadline { deadline_ns: 1_500_000_000, ..Deadline::default() });
    let bare = Row { tenant: Tenant::User { uid: Some(1000) }, name: "grün".into(), ..Row::default() };
    let long = Row { name: "x".repeat(64), gpu_uuid: Some("GPU-1".into()), deadline: idle, ..Row::default() };
    writer.publish(&[full, bare, long], stamp(monotonic_ns())).unwrap();
    writer
}

/// What an example prints after the core use and the state, if it prints these: deadline, what is left, hits, name.
fn expected(with_state: bool) -> String {
    let (name, long) = (format!("name-{:040}", 1), "x".repeat(64));
    let rows = [
        ["1", "3072", "42\tcomputing\t", "9.000", "FLOAT", "12/14", &name],
        ["-", "-", "-\t-\t", "-", "-", "-", "grün"],
        ["-", "-", "-\t-\t", "1.500", "-", "0/0", &long],
    ];
    let line = |[gpu, memory, state, deadline, float, hits, name]: [&str; 7]| {
        let state = if with_state { state } else { "" };
        format!("{gpu}\t{memory}\t{state}{deadline}\t{float}\t{hits}\t{name}\n")
    };
    rows.map(line).concat()
}

/// The output with `FLOAT` for what is left of the late row's deadline, which changes while it is read.
fn without_float(printed: &str) -> String {
    let is_late = |word: &&str| word.parse::<f64>().is_ok_and(|seconds| (-400.0..=-20.0).contains(&seconds));
    let float = printed.split_whitespace().find(is_late).unwrap_or_else(|| panic!("nobody is late: {printed}"));
    printed.replacen(float, "FLOAT", 1)
}

/// A reader prints the table of a living writer, and refuses that of one who has left, died, or lived before a reboot.
fn check_example(reader: &dyn Fn(&Path) -> Output, printed: &str) {
    let directory = directory();
    let path = path_in(&directory);
    let writer = publish_examples(&path);
    let output = reader(&path);
    assert_eq!((without_float(&text(&output.stdout)).as_str(), text(&output.stderr).as_str()), (printed, ""));
    let refused = |why: &str| {
        let output = reader(&path);
        assert!(!output.status.success() && output.stdout.is_empty(), "{why}: {output:?}");
        assert!(text(&output.stderr).contains("any more"), "{why}: {output:?}");
    };
    let hour_ns = 3_600_000_000_000;
    for (beat_ns, why) in [(monotonic_ns().saturating_sub(hour_ns), "dead"), (monotonic_ns() + hour_ns, "rebooted")] {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&beat_ns.to_le_bytes(), offset_of!(RawHeader, heartbeat_mono_ns) as u64).unwrap();
        refused(why);
    }
    writer.heartbeat(monotonic_ns()).unwrap();
    assert!(reader(&path).status.success(), "it was only slow");
    drop(writer);
    refused("left");
}

#[test]
fn the_c_example_prints_the_table_while_somebody_writes_it() {
    let directory = directory();
    let program = directory.path().join("read");
    compile(&repository().join("examples/table/read.c"), &program);
    let run = |path: &Path| Command::new(&program).arg(path).output().unwrap();
    check_example(&run, &expected(true));
    assert!(text(&run(&program).stderr).contains("is no task table"));
}

#[test]
fn a_reader_in_c_never_sees_a_torn_table() {
    let directory = directory();
    let program = directory.path().join("torn");
    compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/table/torn.c"), &program);
    let _writer = Other::start("publishes_until_killed", &path_in(&directory));
    eventually("table", || path_in(&directory).exists().then_some(()));
    let output = Command::new(&program).arg(path_in(&directory)).output().unwrap();
    assert!(output.status.success(), "torn: {}", text(&output.stderr));
}

#[test]
fn the_python_example_prints_the_table_while_somebody_writes_it() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3 on this machine");
        return;
    }
    let script = repository().join("examples/table/read.py");
    let run = |path: &Path| Command::new("python3").arg(&script).arg(path).output().unwrap();
    check_example(&run, &expected(false));
}
