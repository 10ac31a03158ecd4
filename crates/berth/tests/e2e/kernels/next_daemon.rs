//! Programs outlive daemons: those that were attached attach to the next one, and are ordered again without being started anew.

use std::path::Path;

use berth_model::kernels::{KernelRole, KernelRow};

use super::programs::{Program, library};
use super::{daemon, row};
use crate::support::{Daemon, Host, until};

struct Programs {
    server: Program,
    trainer: Program,
}

impl Programs {
    fn start(host: &Host, library: &Path) -> Self {
        let start = |name: &str, args: &[&str]| Program::start(host, library, name, args);
        let server = start("server", &["serve", "--kernels", "10", "--kernel-us", "100"]);
        let trainer = start("trainer", &["train", "--kernels", "10", "--shortest-us", "100", "--longest-us", "101"]);
        trainer.tell("go");
        Self { server, trainer }
    }

    /// The server leads, the trainer yields, and is stopped again and again.
    fn are_ordered(&self, daemon: &Daemon) {
        let row_of = |program: &Program, wanted: &dyn Fn(&KernelRow) -> bool| {
            until(&format!("the row of {}", program.path()), || {
                // Who has nothing to do need not look for a daemon.
                self.server.tell("go 40 0.2");
                self.server.served();
                row(daemon, &program.key()).filter(wanted)
            })
        };
        row_of(&self.server, &|row| row.role == KernelRole::Leads);
        let yields = row_of(&self.trainer, &|row| row.role == KernelRole::Yields);
        assert_eq!(yields.yields_to, [self.server.path()]);
        row_of(&self.trainer, &|row| row.counters.stops > yields.counters.stops);
    }

    /// Everything they submitted has been done.
    fn end(self, host: &Host) {
        self.trainer.trained();
        for program in [self.server, self.trainer] {
            let done = berth_sim::server::kernels_done(&host.sim_dir(), program.pid()).unwrap();
            assert_eq!(done, program.submitted(), "kernels were lost or doubled");
            program.end();
        }
    }
}

fn are_ordered_by_the_next(test: &str, end: impl Fn(&mut Daemon)) {
    let Some(library) = library(test) else { return };
    let host = Host::start();
    let mut first = daemon(&host);
    let programs = Programs::start(&host, &library);
    first.berth(&["slo", "set", programs.server.path(), "latency=p99:10ms"]).ok();
    programs.are_ordered(&first);
    end(&mut first);
    let mut second = daemon(&host);
    programs.are_ordered(&second);
    end(&mut second);
    programs.are_ordered(&daemon(&host));
    programs.end(&host);
}

#[test]
fn programs_attach_to_the_daemon_that_comes_after_one_that_was_killed() {
    let test = "programs_attach_to_the_daemon_that_comes_after_one_that_was_killed";
    are_ordered_by_the_next(test, Daemon::kill);
}

#[test]
fn programs_attach_to_the_daemon_that_comes_after_one_that_was_stopped() {
    let test = "programs_attach_to_the_daemon_that_comes_after_one_that_was_stopped";
    are_ordered_by_the_next(test, |daemon| assert_eq!(daemon.stop(), 0));
}
