//! Policies that are switched a thousand times while programs with the library work: nothing is lost, nobody hangs, no result is wrong.
//!
//! The programs check themselves (`berth load check`: words that streams write in an order that must hold), and the simulator is asked
//! how many of their kernels it has run: as many as they have submitted, or one was lost or doubled.

use std::time::Duration;

use berth_load::roles::words::Said;
use berth_model::kernels::KernelRole;
use serde_json::json;

use super::programs::{Program, library};
use super::{daemon, row};
use crate::support::{Daemon, Host, until};

const SWITCHES: usize = 1_000;
const POLICIES: [&str; 4] = ["jct", "slo", "hybrid", "off"];
/// Some plans of each: squads last milliseconds.
const BETWEEN: Duration = Duration::from_millis(8);

/// Has a program do its fixed work again and again.
struct Worker {
    program: Program,
    go: &'static str,
    rounds: u32,
    steps: usize,
}

impl Worker {
    fn start(program: Program, go: &'static str) -> Self {
        program.tell(go);
        Self { program, go, rounds: 1, steps: 0 }
    }

    fn take(&mut self, said: &Said) {
        match said {
            Said::Checked(checked) => {
                assert_eq!(checked.wrong, 0, "wrong results: {checked:?}");
                self.steps += checked.ended_ns.len();
            }
            Said::Served(served) => {
                assert_eq!(served.given_up, 0, "{served:?}");
                self.steps += usize::try_from(served.requests).unwrap();
            }
            said => panic!("{said:?}"),
        }
    }

    fn look(&mut self) {
        if let Some(said) = self.program.has_said() {
            self.take(&said);
            self.program.tell(self.go);
            self.rounds += 1;
        }
    }

    /// Ends the last round; every kernel that was submitted has run, once.
    fn end(mut self, host: &Host) -> (usize, u64) {
        let said = self.program.says();
        self.take(&said);
        let submitted = self.program.submitted();
        let done = berth_sim::server::kernels_done(&host.sim_dir(), self.program.pid()).unwrap();
        assert_eq!(done, submitted, "kernels were lost or doubled in {} rounds", self.rounds);
        self.program.end();
        (self.steps, done)
    }
}

fn set_policy(daemon: &Daemon, policy: &str) {
    let told: serde_json::Value = daemon.post(berth_api::paths::KERNEL_POLICY, &json!({ "policy": policy }));
    assert_eq!(told["policy"], policy);
}

#[test]
fn policies_are_switched_a_thousand_times_while_everybody_works() {
    let Some(library) = library("policies_are_switched_a_thousand_times_while_everybody_works") else { return };
    let host = Host::start();
    let mut daemon = daemon(&host);
    let start = |name: &str, args: &[&str]| Program::start(&host, &library, name, args);
    let server = start("server", &["serve", "--kernels", "10", "--kernel-us", "100"]);
    let eager = start("eager", &["check", "--steps", "100", "--kernels", "4"]);
    let graphs = start("graphs", &["check", "--steps", "100", "--kernels", "4", "--graph"]);
    daemon.berth(&["slo", "set", server.path(), "latency=p99:10ms"]).ok();
    let keys = [server.key(), eager.key(), graphs.key()];
    let mut workers = [Worker::start(server, "go 40 0.5"), Worker::start(eager, "go"), Worker::start(graphs, "go")];
    until("the server to lead", || row(&daemon, &keys[0]).filter(|row| row.role == KernelRole::Leads));

    for policy in POLICIES.iter().cycle().take(SWITCHES) {
        set_policy(&daemon, policy);
        workers.iter_mut().for_each(Worker::look);
        std::thread::sleep(BETWEEN);
    }
    set_policy(&daemon, "hybrid");
    for key in &keys[1..] {
        let shown = row(&daemon, key).expect("it is not attached any more");
        assert!(shown.counters.stops > 0 && shown.counters.launches > 0, "it was not ordered: {shown:?}");
    }
    for (name, worker) in ["server", "eager", "graphs"].into_iter().zip(workers) {
        let (steps, kernels) = worker.end(&host);
        eprintln!("{name}: {steps} steps, {kernels} kernels over {SWITCHES} changes of the policy");
        let said = std::fs::read_to_string(host.file(&format!("{name}.log"))).unwrap();
        assert!(!said.contains("without berth") && !said.contains("for nothing"), "{name} says {said}");
    }
    assert!(daemon.is_running());
    let log = std::fs::read_to_string(host.file("berth.log")).unwrap();
    let bad: Vec<&str> = log.lines().filter(|line| line.contains(" ERROR ") || line.contains("panicked")).collect();
    assert_eq!(bad, [""; 0]);
}

/// By hand, and what is refused.
#[test]
fn a_policy_is_set_by_its_name_shown_and_off_frees_everybody() {
    let host = Host::start();
    let daemon = daemon(&host);
    let (one, other) = (super::taking_part(&host, &daemon, "one"), super::taking_part(&host, &daemon, "other"));
    one.works(true);
    other.works(true);
    let policy = || daemon.snapshot().kernels.unwrap().policy.as_str();
    for name in ["jct", "slo", "hybrid", "slo"] {
        let told = daemon.berth(&["policy", "set", name]).ok();
        assert!(told.starts_with(&format!("{name} plans at the level of kernels now")), "{told}");
        until("the policy to be shown", || (policy() == name).then_some(()));
    }
    daemon.berth(&["policy", "set", "off", "--kernels"]).ok();
    for client in [&one, &other] {
        until("everybody to be free", || (client.word("yields") == 0).then_some(()));
    }
    let refused = daemon.berth(&["policy", "set", "fifo", "--kernels"]);
    assert!(refused.code != 0 && refused.stderr.contains("fifo is a policy of holds"), "{refused:?}");
}
