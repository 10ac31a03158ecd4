//! `berth demo`: the main job on a simulated GPU, in half a minute.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::cli::Global;
use crate::demo::{CAST, Director, Latest, Verdict};
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::out::Stdout;
use crate::stage::{GpuChoice, GroundChoice, Stage};
use crate::table::{self, Style};
use crate::{settings, tui};

const EXAMPLES: &str = "\
Examples:
  berth demo                       live on this terminal; q ends it
  berth demo --plain               tables instead, as without a terminal
  berth demo --ground cgroup       without Docker

Installs nothing and leaves nothing behind. The GPUs are simulated; containers, cgroups and probes are real.";

const NEXT: &str = "\
Try next
  berth doctor                     what this host can do, and what is missing
  berth ps                         who is on this host's GPUs
  berth top                        the same, live
  berth daemon                     watch this host; `berth policy set fifo` lets those who contend take turns
  berth bench detect               how exactly berth sees, and what it costs
  berth sim serve --dir /tmp/sim   a simulated GPU of your own; `berth sim env` tells how to use it";

const PLAIN_EVERY: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(250);

/// See berth at work in half a minute, on simulated GPUs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What the tenants are
    #[arg(long, value_enum, default_value = "auto")]
    ground: GroundChoice,
    /// Print tables instead of the live view
    #[arg(long)]
    plain: bool,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    let interrupt = Interrupt::listen()?;
    let gpu = GpuChoice::Sim { profile: "rtx3090".to_owned(), gpus: 2, time_scale: None, mps: false };
    let stage = Stage::open("berth-demo", &gpu, args.ground, &settings.docker.socket)?;
    Stdout::line(&format!(
        "Two simulated RTX 3090; {} tenants will come as {} and go within half a minute.",
        CAST.len(),
        stage.ground()
    ))?;
    for shortcoming in stage.shortcomings() {
        Stdout::line(&format!("  {shortcoming}"))?;
    }
    let played = play(stage, args.plain || !is_interactive(), &interrupt);
    let told = played.and_then(|verdict| Stdout::line(&format!("\n{}", verdict.to_text())));
    // With a terminal that is closed, nothing can be told and that is no failure.
    interrupt.outcome(told)?;
    Stdout::line(&format!("\n{NEXT}"))?;
    Ok(ExitCode::SUCCESS)
}

fn is_interactive() -> bool {
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

/// The stage is gone when this returns.
fn play(stage: Stage, plain: bool, interrupt: &Interrupt) -> Result<Verdict> {
    let settings = stage.settings();
    let latest = Latest::default();
    let tap = latest.clone();
    let (live, engine) = Live::tapped(&settings, move |snapshot| {
        *tap.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot.clone());
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    let director =
        Director { stage, engine, latest: latest.clone(), stop: Arc::clone(&stop), interrupt: interrupt.clone() };
    let play = std::thread::Builder::new().name("berth-demo".into()).spawn(move || director.play())?;
    let shown = if plain {
        drop(live);
        show_plain(&latest, || play.is_finished())
    } else {
        tui::run(&live, &settings, STEP)
    };
    stop.store(true, Ordering::Relaxed);
    let verdict = play.join().map_err(|_| anyhow!("the demo's director died"))??;
    shown.map(|()| verdict)
}

/// A table now and then, for a pipe or a log.
fn show_plain(latest: &Latest, is_over: impl Fn() -> bool) -> Result<()> {
    let mut steps = 0;
    while !is_over() {
        std::thread::sleep(STEP);
        steps += 1;
        if !(STEP * steps).as_millis().is_multiple_of(PLAIN_EVERY.as_millis()) {
            continue;
        }
        let snapshot = latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(snapshot) = snapshot {
            Stdout::line(&format!("\n{}", table::of_tasks(&snapshot.tasks, Style::default())))?;
        }
    }
    Ok(())
}
