//! What becomes of command lines, with a client that knows a few flags.

use proptest::prelude::*;

use super::super::help;
use super::super::kernel_level::{Image, Offer, Preload};
use super::*;

struct Client {
    help: &'static str,
    formats_ps: bool,
}

/// The flags of `docker run`, shortened to what matters here.
const RUN: &str = "
  -a, --attach list          Attach to STDIN, STDOUT or STDERR
  -d, --detach               Run container in background and print container ID
  -e, --env list             Set environment variables
      --env-file list        Read in a file of environment variables
      --help                 Print usage
  -i, --interactive          Keep STDIN open even if not attached
  -l, --label list           Set meta data on a container
      --mount mount          Attach a filesystem mount to the container
      --name string          Assign a name to the container
      --rm                   Automatically remove the container
  -t, --tty                  Allocate a pseudo-TTY
";

impl Asks for Client {
    fn flags(&self, of: Verb) -> Option<FlagSet> {
        let is_known = |line: &&str| of == Verb::Run || !line.contains("--detach");
        help::flags(&self.help.lines().filter(is_known).collect::<Vec<_>>().join("\n"))
    }

    fn formats_ps(&self, config: Option<&str>) -> bool {
        self.formats_ps || config == Some("/formatted")
    }

    fn kernel_level(&self) -> Result<Offer, String> {
        match self.formats_ps {
            true => Err("off".to_owned()),
            false => Ok(Offer { library: "/l/lib.so".into(), socket: "/s/d/a.sock".into(), has_mps: false }),
        }
    }

    fn image(&self, globals: &[OsString], image: &str) -> Option<Image> {
        match image {
            "alpine" => Some(Image { is_musl: true, ..Image::default() }),
            "malloc" => Some(Image { preload: Some("/j.so".to_owned()), ..Image::default() }),
            "far" => None,
            _ if globals == ["-H", "far"] => None,
            _ => Some(Image::default()),
        }
    }

    fn preload(&self, said: &Preload) -> Option<String> {
        match said {
            Preload::Said(value) => Some(value.clone()),
            Preload::OfClient => Some("/client.so".to_owned()),
            Preload::Files(files) => files.last().map(|file| format!("/of/{file}.so")),
        }
    }

    fn set_deadlines(&self) -> Vec<SetDeadline> {
        let set = |id: &str, text: &str| SetDeadline::new(id.to_owned(), text.to_owned());
        [set("0123456789abcdef", "12s (set)"), set("x{{.ID}}abcdefghijk", "9s (set)")].into_iter().flatten().collect()
    }
}

const CLIENT: Client = Client { help: RUN, formats_ps: false };

fn args(line: &str) -> Vec<OsString> {
    line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect()
}

fn becomes(line: &str) -> String {
    match plan(&args(line), &CLIENT) {
        Ok(Plan::AsIs) => "as it is".to_owned(),
        Ok(Plan::With(args)) => args.join(" ".as_ref()).into_string().unwrap(),
        Ok(Plan::Help(args)) => format!("help: {}", args.join(" ".as_ref()).into_string().unwrap()),
        Ok(Plan::Telling(told, args)) => format!("{told}: {}", args.join(" ".as_ref()).into_string().unwrap()),
        Err(refusal) => format!("refused: {refusal}"),
    }
}

fn gives(line: &str, start: &str, rest: &str) {
    assert_eq!(becomes(line), format!("{start}{rest}"), "{line}");
}

#[test]
fn a_deadline_becomes_a_label_in_its_place_and_detaches_nobody() {
    let label = "--label=berth.deadline";
    gives("run -dl 9 image", "run ", &format!("{label}=9 image"));
    gives("run -dl=9 image", "run ", &format!("{label}=9 image"));
    gives("run -dl9 image", "run ", &format!("{label}=9 image"));
    gives("run --deadline 1500ms image", "run ", &format!("{label}=1500ms image"));
    gives("run --deadline=2m image", "run ", &format!("{label}=2m image"));
    gives("run --rm --name x -dl 9s -it image sh", "run --rm --name x ", &format!("{label}=9s -it image sh"));
    gives("-H unix:///x container run -dl 9 -- image", "-H unix:///x container run ", &format!("{label}=9 -- image"));
    gives("create -dl 9 image", "create ", &format!("{label}=9 image"));
    gives("container create --deadline 9 image", "container create ", &format!("{label}=9 image"));
    gives("run -dl a=b -dl 9 image", "run -dl a=b ", &format!("{label}=9 image"));
    let (own, others) = ("-l berth.deadline=8 image", "-l berth.deadlines=8 -l a=berth.deadline image");
    gives(&format!("run -dl 9 image {own}"), "run ", &format!("{label}=9 image {own}"));
    gives(&format!("run -dl 9 {others}"), "run ", &format!("{label}=9 {others}"));
    gives("run -dl 9 image -dl 8", "run ", &format!("{label}=9 image -dl 8"));
    gives("run -dl 9", "run ", &format!("{label}=9"));
    gives("run -dl 9 --bogus image", "run ", &format!("{label}=9 --bogus image"));
}

#[test]
fn what_the_client_means_by_it_stays() {
    for line in [
        "run -dl key=value image",
        "run -dl=key=value image",
        "run -dlkey=value image",
        "run -dl 9= image",
        "create -dl key=value image",
        "run -d -l 9 image",
        "run -l 9 -d image",
        "run -itdl 9 image",
        "run -ditl 9 image",
        "run --label berth.deadline=soon image",
        "run image -dl 9",
        "run image --deadline 9",
        "run image cmd --help",
        "run -- image -dl 9",
        "run --name -dl image",
        "run --name --deadline image",
        "run -e -dl -l --deadline image",
        "run -it - -dl 9",
        "run --deadlines 9 image",
        "run --bogus -dl abc image",
        "run -z -dl abc image",
        "exec -dl 9 x",
        "compose run -dl 9 x",
        "--bogus run -dl 9 image",
        "run",
        "create",
        "",
    ] {
        gives(line, "as it is", "");
    }
}

#[test]
fn what_is_no_deadline_is_refused_and_the_value_named() {
    for (line, told) in [
        ("run -dl", "flag needs an argument: -dl"),
        ("create --deadline", "flag needs an argument: --deadline"),
        ("run -dl abc image", "invalid argument \"abc\" for \"-dl, --deadline\" flag: "),
        ("create -dl abc image", "invalid argument \"abc\" for \"-dl, --deadline\" flag: "),
        ("run -dl -1 image", "invalid argument \"-1\" for \"-dl, --deadline\" flag: "),
        ("run -dl=-1 image", "invalid argument \"-1\" for \"-dl, --deadline\" flag: "),
        ("run -dl 1e99 image", "invalid argument \"1e99\" for \"-dl, --deadline\" flag: "),
        ("run -dl 0 image", "invalid argument \"0\" for \"-dl, --deadline\" flag: "),
        ("run -dl= image", "invalid argument \"\" for \"-dl, --deadline\" flag: "),
        ("run --deadline a=b image", "invalid argument \"a=b\" for \"-dl, --deadline\" flag: "),
        ("run -dl --name x image", "invalid argument \"--name\" for \"-dl, --deadline\" flag: "),
        (
            "run -dl 9 -dl 8 image",
            "invalid argument \"8\" for \"-dl, --deadline\" flag: a deadline of \"9\" is given already",
        ),
        ("run -dl 9 --rm --deadline 9 image", "invalid argument \"9\" for "),
        (
            "run -dl 4 --label berth.deadline=3 image",
            "invalid argument \"4\" for \"-dl, --deadline\" flag: a deadline of \"3\" is given already",
        ),
        ("run -itl berth.deadline=3 -dl 4 image", "invalid argument \"4\" for "),
        ("run -dl berth.deadline=3 --deadline 4 image", "invalid argument \"4\" for "),
        ("create --label=berth.deadline= -dl 4 image", "invalid argument \"4\" for "),
        ("run --help -dl abc image", "invalid argument \"abc\" for "),
    ] {
        assert!(becomes(line).starts_with(&format!("refused: {told}")), "{line}: {}", becomes(line));
    }
    assert!(becomes("run -dl abc image").ends_with("(for a label, and detached, write -d -l abc)"));
    assert!(!becomes("run -dl -1 image").contains("for a label"));
}

#[test]
fn a_refusal_reads_as_the_clients_own() {
    let refusal = plan(&args("container run -dl"), &CLIENT).unwrap_err();
    let usage = "Usage:  docker container run [OPTIONS] IMAGE [COMMAND] [ARG...]";
    let expected =
        format!("flag needs an argument: -dl\n\n{usage}\n\nRun 'docker container run --help' for more information");
    assert_eq!(refusal.told(""), expected);
    assert!(refusal.told("berth ").ends_with("Run 'docker berth container run --help' for more information"));
}

#[test]
fn a_deadline_is_not_lost_where_the_help_says_nothing() {
    let mute = Client { help: "no such command", formats_ps: false };
    assert!(matches!(plan(&args("run -dl 9 image"), &mute), Err(Refusal::NoFlags { .. })));
    assert_eq!(plan(&args("run --help"), &mute), Ok(Plan::AsIs));
}

#[test]
fn help_is_completed_where_the_client_would_show_it() {
    gives("run --help", "help: ", "run --help");
    gives("container create --help", "help: ", "container create --help");
    gives("run -it --name x --help image", "help: ", "run -it --name x --help image");
    gives("run -dl 9 --help", "help: ", "run --help");
    gives("run --name --help image", "as it is", "");
    gives("run --help=false image", "as it is", "");
}

#[test]
fn a_list_that_nobody_formats_has_one_more_column() {
    for (words, rest) in [
        ("ps", ""),
        ("ps", " -a"),
        ("container ls", ""),
        ("container list", " -a"),
        ("-c x ps", " -n 3"),
        ("ps", " -af name=x --no-trunc"),
        ("ps", " --all=false"),
    ] {
        let told = becomes(&format!("{words}{rest}"));
        assert!(told.starts_with(&format!("{words} --format table {{{{.ID}}}}")), "{told}");
        assert!(told.ends_with(&format!("{{{{end}}}}{rest}")) && told.contains("DEADLINES"), "{told}");
        assert!(!told.contains(".Size"), "{told}");
    }
    for line in ["ps -s", "ps -as", "ps --size", "ps --size=true", "ps --size=false -s"] {
        assert!(becomes(line).contains(r"{{.Names}}\t{{.Size}}\t{{if"), "{line}");
    }
}

#[test]
fn what_was_set_is_listed_by_id_and_before_labels() {
    let told = becomes("ps");
    let case = r#"DEADLINES{{else if eq .ID "0123456789abcdef" "0123456789ab"}}12s (set){{else}}{{with .Label"#;
    assert!(told.contains(case), "{told}");
    assert!(!told.contains("9s (set)"), "what is no id stays out of the template: {told}");
}

#[test]
fn a_list_that_somebody_formats_is_as_they_say() {
    for line in [
        "ps -q",
        "ps -aq",
        "ps --quiet",
        "ps --format {{.ID}}",
        "ps --format=json",
        "ps --help",
        "ps x",
        "ps -- x",
        "ps --bogus",
        "--config /formatted ps",
        "service ps x",
        "container ls -q",
        "ps -a --format table",
    ] {
        gives(line, "as it is", "");
    }
    assert_eq!(plan(&args("ps"), &Client { help: RUN, formats_ps: true }), Ok(Plan::AsIs));
    gives("ps --size=maybe", "as it is", "");
}

fn word() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "run",
        "create",
        "container",
        "-d",
        "-l",
        "--label",
        "9",
        "9s",
        "a=b",
        "--",
        "-",
        "image",
        "-it",
        "--name",
        "--rm",
        "-H",
        "--context",
        "-D",
        "--help",
        "-itdl",
        "-ld",
        "--deadlines",
        "exec",
        "",
    ]);
    prop_oneof![8 => known.prop_map(str::to_owned), 1 => "-{0,2}[a-z0-9=]{0,6}"]
}

proptest! {
    #[test]
    fn a_line_without_a_deadline_is_passed_on_as_it_is(words in prop::collection::vec(word(), 0..12)) {
        prop_assume!(!words.iter().any(|word| word.starts_with("-dl") || word == "--deadline" || word.starts_with("--deadline=")));
        let line: Vec<OsString> = words.iter().map(OsString::from).collect();
        match plan(&line, &CLIENT) {
            Ok(Plan::AsIs) => {}
            Ok(Plan::Help(same)) => prop_assert_eq!(same, line),
            other => prop_assert!(words.iter().any(|word| word == "ps"), "{:?}", other),
        }
    }

    #[test]
    fn only_the_tokens_of_the_deadline_change(before in prop::collection::vec(word(), 0..6), after in prop::collection::vec(word(), 0..6)) {
        let line: Vec<OsString> =
            [vec!["run".to_owned()], before.clone(), vec!["-dl".to_owned(), "9".to_owned()], after.clone()].concat().iter().map(OsString::from).collect();
        let others_are_ours = before.iter().chain(&after).any(|word| word.starts_with("-dl") || word.starts_with("--deadline"));
        prop_assume!(!others_are_ours);
        if let Ok(Plan::With(new)) = plan(&line, &CLIENT) {
            let at = 1 + before.len();
            prop_assert_eq!(&new[..at], &line[..at]);
            prop_assert_eq!(&new[at], "--label=berth.deadline=9");
            prop_assert_eq!(&new[at + 1..], &line[at + 2..]);
        }
    }
}

/// With `preload` in its place.
fn takes_part(preload: &str) -> String {
    format!(
        "--label=berth.kernel-level=true \
        --mount=type=bind,source=/l/lib.so,target=/run/berth/lib64/libberth_shim.so,readonly \
        --mount=type=bind,source=/l/lib.so,target=/run/berth/lib/libberth_shim.so,readonly \
        --mount=type=bind,source=/l/lib.so,target=/run/berth/lib/x86_64-linux-gnu/libberth_shim.so,readonly \
        --mount=type=bind,source=/s/d,target=/run/berth/shim,readonly \
        --env=LD_PRELOAD={preload} --env=BERTH_SHIM_SOCKET=/run/berth/shim/a.sock"
    )
}

const LIBRARY: &str = "/run/berth/$LIB/libberth_shim.so";

#[test]
fn a_container_that_takes_part_is_given_the_library_and_the_socket_s_directory() {
    let given = takes_part(LIBRARY);
    assert_eq!(becomes("run --kernel-level --name a image cmd"), format!("run --name a {given} image cmd"));
    let both = becomes("run -d -dl 9 --kernel-level -- image");
    assert_eq!(both, format!("run -d --label=berth.deadline=9 {given} -- image"));
    assert_eq!(becomes("run --kernel-level --kernel-level=true image"), format!("run {given} image"));
    assert_eq!(becomes("run --kernel-level=false --name a image"), "run --name a image");
    assert_eq!(becomes("run image --kernel-level"), "as it is", "it is the program's own");
    assert_eq!(becomes("run --name --kernel-level image"), "as it is", "it is a name");
}

#[test]
fn what_a_container_preloads_anyway_stays_and_goes_first() {
    let behind = |own: &str| takes_part(&format!("{own}:{LIBRARY}"));
    for (line, own) in [
        ("run --kernel-level malloc", "/j.so"),
        ("run --kernel-level -e LD_PRELOAD=/a.so -e LD_PRELOAD=/b.so malloc", "/b.so"),
        ("run --kernel-level -e A=1 --env LD_PRELOAD malloc", "/client.so"),
        ("run --kernel-level --env-file f --env-file g malloc", "/of/g.so"),
        ("run --env-file f --env=LD_PRELOAD=/a.so --kernel-level --env-file g malloc", "/a.so"),
    ] {
        let (flags, image) = line.strip_prefix("run ").and_then(|line| line.rsplit_once(' ')).unwrap();
        let flags: Vec<&str> = flags.split(' ').filter(|flag| *flag != "--kernel-level").chain([""]).collect();
        assert_eq!(becomes(line), format!("run {}{} {image}", flags.join(" "), behind(own)));
    }
}

#[test]
fn an_image_made_with_musl_is_started_without_and_it_is_told_why() {
    let told = becomes("run -d --kernel-level alpine sh");
    assert!(told.ends_with(": run -d alpine sh") && told.contains("alpine is made with musl"), "{told}");
}

#[test]
fn of_an_image_that_is_not_here_nothing_is_known_and_that_is_told() {
    for line in ["run --kernel-level far", "-H far container run --kernel-level image"] {
        let told = becomes(line);
        assert!(told.contains("is not here yet") && told.contains(&takes_part(LIBRARY)), "{told}");
    }
}

#[test]
fn where_mps_runs_those_with_a_latency_to_keep_go_first_unless_somebody_says_otherwise() {
    let given = |line: &str| {
        let flags = CLIENT.flags(Verb::Run).unwrap();
        let found = kernel_level::find(&line.split(' ').map(str::to_owned).collect::<Vec<_>>(), &flags);
        let offer = Offer { has_mps: true, ..CLIENT.kernel_level().unwrap() };
        found
            .instead(&offer, None)
            .into_iter()
            .find_map(|arg| arg.strip_prefix("--env=CUDA_MPS_CLIENT_PRIORITY=").map(str::to_owned))
    };
    assert_eq!(given("--kernel-level -l berth.slo.latency=p99:10ms image").as_deref(), Some("0"));
    assert_eq!(given("--kernel-level -l berth.slo.weight=9 image").as_deref(), Some("1"));
    assert_eq!(given("--kernel-level -e CUDA_MPS_CLIENT_PRIORITY=0 image"), None);
}

#[test]
fn where_nobody_takes_part_nothing_is_started() {
    let off = Client { formats_ps: true, ..CLIENT };
    let refusal = plan(&args("run --kernel-level image"), &off).unwrap_err().told("berth ");
    assert!(refusal.starts_with("--kernel-level: off\n\nUsage:  docker berth run"), "{refusal}");
}
