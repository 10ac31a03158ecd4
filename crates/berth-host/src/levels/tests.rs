use super::*;

fn offered() -> Facts {
    let library =
        CudaFacts { library: "libcuda.so.1".into(), has_lock: true, has_checkpoint: true, has_green_contexts: true };
    Facts {
        nvml: Ok(NvmlFacts { driver: Some("580.159".into()), gpus: 2, unseen: vec![], mig_capable: 0 }),
        processes: Ok(()),
        docker: Some(Ok("engine 28.5.2 at /run/docker.sock".into())),
        process_events: Some(Ok("proc connector".into())),
        probes: Some(Ok("eBPF probes".into())),
        uprobes: Ok("eBPF probes".into()),
        halting: "unseen",
        freezers: vec![freezer(CgroupVersion::V2, "/sys/fs/cgroup", true)],
        out_of_sight: None,
        cuda: Ok(library.clone()),
        driver: Ok(library),
        means: [Means::Freeze, Means::Lock, Means::Gate, Means::Park].into(),
        mps_control: Some("/usr/bin/nvidia-cuda-mps-control".into()),
    }
}

fn freezer(version: CgroupVersion, mount: &str, is_writable: bool) -> Freezer {
    Freezer { version, mount: mount.into(), is_writable }
}

fn status(facts: &Facts, subject: Subject) -> Status {
    reports(facts).into_iter().find(|report| report.subject == subject).expect("every subject is reported").status
}

fn reason(facts: &Facts, subject: Subject) -> String {
    match status(facts, subject) {
        Status::Missing { reason } => reason,
        other => panic!("{subject:?} is not missing: {other:?}"),
    }
}

const LEVELS: [Level; 6] = [Level::Observe, Level::Freeze, Level::Lock, Level::Gate, Level::Park, Level::Partition];

#[test]
fn a_host_with_everything_observes_and_holds_by_all_means_and_offers_the_rest() {
    let facts = offered();
    assert_eq!(
        status(&facts, Subject::Level(Level::Observe)),
        Status::Available { detail: "2 GPUs, driver 580.159".into() }
    );
    for level in &LEVELS[1..5] {
        let status = status(&facts, Subject::Level(*level));
        assert!(matches!(status, Status::Available { .. }), "{level:?}: {status:?}");
    }
    for level in &LEVELS[5..] {
        let status = status(&facts, Subject::Level(*level));
        assert!(matches!(status, Status::Offered { .. }), "{level:?} is used by nobody yet: {status:?}");
    }
}

#[test]
fn without_the_driver_s_library_nothing_is_observed_and_its_words_are_passed_on() {
    let facts = Facts { nvml: Err("cannot find libnvidia-ml.so.1: install it".into()), ..offered() };
    for subject in [Subject::Level(Level::Observe), Subject::Source(Source::Nvml)] {
        assert_eq!(reason(&facts, subject), "cannot find libnvidia-ml.so.1: install it");
    }
    assert!(matches!(status(&facts, Subject::Level(Level::Freeze)), Status::Available { .. }), "that needs no GPU");
}

#[test]
fn a_driver_without_gpus_does_not_observe() {
    let facts = Facts { nvml: Ok(NvmlFacts::default()), ..offered() };
    assert!(reason(&facts, Subject::Level(Level::Observe)).contains("lists no GPU"));
}

#[test]
fn gpus_that_cannot_be_seen_are_told_and_nothing_is_observed_without_one_that_can() {
    let with = |unseen: &[&str]| {
        let unseen = unseen.iter().map(|&words| words.to_owned()).collect();
        Facts { nvml: Ok(NvmlFacts { gpus: 2, unseen, ..NvmlFacts::default() }), ..offered() }
    };
    let (first, second) = ("GPU 0 is lost: XID 79", "GPU 1: its processes cannot be listed: unknown error");
    let Status::Available { detail } = status(&with(&[first]), Subject::Level(Level::Observe)) else {
        panic!("one is left")
    };
    assert_eq!(detail, "2 GPUs; GPU 0 is lost: XID 79");
    let none = reason(&with(&[first, second]), Subject::Level(Level::Observe));
    assert!(none.contains(first) && none.contains(second) && none.contains("reset"), "{none}");
}

#[test]
fn what_is_switched_off_is_not_called_missing() {
    let facts = Facts { docker: None, process_events: None, probes: None, ..offered() };
    for source in [Source::Docker, Source::ProcessEvents, Source::Probes] {
        assert_eq!(status(&facts, Subject::Source(source)), Status::Off);
    }
    assert_eq!(status(&facts, Subject::Level(Level::Gate)), Status::Off, "it is made of probes");
}

#[test]
fn freezing_takes_a_hierarchy_that_may_be_written() {
    let none = Facts { freezers: vec![], ..offered() };
    assert!(reason(&none, Subject::Level(Level::Freeze)).contains("mount cgroup2"));
    let read_only = Facts { freezers: vec![freezer(CgroupVersion::V1, "/sys/fs/cgroup/freezer", false)], ..offered() };
    assert!(reason(&read_only, Subject::Level(Level::Freeze)).contains("/sys/fs/cgroup/freezer may not be written"));
    let inside = Facts { out_of_sight: Some(OutOfSight::Namespace), ..offered() };
    assert!(reason(&inside, Subject::Level(Level::Freeze)).contains("cgroup namespace of its own"));
}

#[test]
fn a_driver_from_before_the_lock_says_which_one_has_it() {
    let old = CudaFacts { library: "/x/libcuda.so.1".into(), ..CudaFacts::default() };
    let facts = Facts { driver: Ok(old), ..offered() };
    for level in [Level::Lock, Level::Park] {
        let reason = reason(&facts, Subject::Level(level));
        assert!(reason.contains("/x/libcuda.so.1") && reason.contains("570"), "{reason}");
    }
}

#[test]
fn means_that_the_settings_leave_out_are_off() {
    let facts = Facts { means: [Means::Freeze, Means::Lock].into(), ..offered() };
    assert_eq!(status(&facts, Subject::Level(Level::Park)), Status::Off);
    assert_eq!(status(&facts, Subject::Level(Level::Gate)), Status::Off);
    assert!(matches!(status(&facts, Subject::Level(Level::Lock)), Status::Available { .. }));
}

#[test]
fn parking_takes_nvml_to_tell_whether_there_is_room_to_come_back() {
    let facts = Facts { nvml: Err("cannot find libnvidia-ml.so.1: install it".into()), ..offered() };
    assert!(reason(&facts, Subject::Level(Level::Park)).contains("libnvidia-ml.so.1"));
    assert!(matches!(status(&facts, Subject::Level(Level::Lock)), Status::Available { .. }), "that needs no look");
}

#[test]
fn the_gate_takes_both_probes_and_a_driver() {
    let blind = Facts { uprobes: Err("eBPF is not permitted: run berth as root".into()), ..offered() };
    assert!(reason(&blind, Subject::Level(Level::Gate)).contains("not permitted"));
    let bare = Facts { cuda: Err("no CUDA driver library: install it".into()), ..offered() };
    assert!(reason(&bare, Subject::Level(Level::Gate)).contains("no CUDA driver"));
}

#[test]
fn the_gate_says_whether_it_is_seen() {
    let old = Facts { halting: "by signals", ..offered() };
    for (facts, words) in [(offered(), "halted unseen"), (old, "halted by signals")] {
        let Status::Available { detail } = status(&facts, Subject::Level(Level::Gate)) else { panic!("{facts:?}") };
        assert!(detail.ends_with(words), "{detail}");
    }
}

#[test]
fn any_one_way_to_divide_a_gpu_is_enough() {
    let nothing = Facts { mps_control: None, cuda: Ok(CudaFacts::default()), ..offered() };
    assert!(reason(&nothing, Subject::Level(Level::Partition)).contains("nvidia-cuda-mps-control"));
    let mig = Facts { nvml: Ok(NvmlFacts { mig_capable: 1, gpus: 1, ..NvmlFacts::default() }), ..nothing };
    assert_eq!(status(&mig, Subject::Level(Level::Partition)), Status::Offered { detail: "MIG".into() });
}

#[test]
fn mounts_that_can_freeze_are_found_among_all() {
    let mounts = "proc /proc proc rw 0 0\n\
                  cgroup /sys/fs/cgroup/freezer cgroup rw,nosuid,freezer 0 0\n\
                  cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                  cgroup2 /nonexistent cgroup2 rw,nosuid 0 0\n\
                  garbage\n";
    let found: Vec<_> = gather::freezers(mounts).into_iter().map(|f| (f.version, f.mount, f.is_writable)).collect();
    assert_eq!(found[0].1, PathBuf::from("/sys/fs/cgroup/freezer"));
    assert_eq!(found[1], (CgroupVersion::V2, "/nonexistent".into(), false));
    assert_eq!(found.len(), 2);
}

#[test]
fn a_library_that_is_not_there_is_told_with_the_loader_s_words() {
    let error =
        gather::cuda(&["libberth-none.so.1".into(), "/nonexistent/libcuda.so.1".into()], "hold.driver").unwrap_err();
    assert!(error.contains("libberth-none.so.1: cannot open") && error.contains("hold.driver"), "{error}");
    assert!(gather::cuda(&[], "hold.driver").is_err());
    let other = gather::cuda(&["libc.so.6".into()], "hold.driver").unwrap();
    assert!(!other.has_lock && !other.has_checkpoint && !other.has_green_contexts);
}

#[test]
fn this_host_is_reported_in_full_whatever_it_is() {
    let mut settings = Settings::default();
    settings.nvml.library = "/nonexistent/libnvidia-ml.so.1".into();
    settings.docker.socket = "/nonexistent/docker.sock".into();
    let reports = check(&settings);
    let subjects: Vec<Subject> = reports.iter().map(|report| report.subject).collect();
    let sources = [Source::Nvml, Source::Docker, Source::ProcessEvents, Source::Probes];
    let expected: Vec<Subject> = LEVELS.map(Subject::Level).into_iter().chain(sources.map(Subject::Source)).collect();
    assert_eq!(subjects, expected);
    assert!(matches!(&reports[0].status, Status::Missing { reason } if reason.contains("/nonexistent")));
    assert!(matches!(&reports[7].status, Status::Missing { reason } if reason.contains("/nonexistent/docker.sock")));
    for report in &reports {
        eprintln!("{report:?}");
    }
}
