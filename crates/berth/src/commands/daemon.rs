//! `berth daemon`: watches this host until told to stop, and serves what it sees.
//!
//! Runs in the foreground; putting it into the background is the service manager's work, which is told when it is
//! ready, when it stops, and, where it asks for that, that the loop still turns.

use std::convert::Infallible;
use std::future::pending;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use berth_api::{Access, Feed, MetricsPort, ReportTotals, Server};
use berth_cluster::node::Counters;
use berth_engine::Engine;
use berth_model::cluster::Report;
use berth_model::control::{Ask, Caller, Reply};
use berth_model::history::{Query, Told};
use berth_model::watch::series::{SeriesQuery, SeriesTold};
use berth_model::{Settings, Snapshot};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;
use tokio::sync::oneshot;

use crate::cli::Global;
use crate::commands::{history, series};
use crate::node::{self, Member, Reporter};
use crate::pods::Pods;
use crate::{engine, guard, live, logging, pods, settings, sight};

const EXAMPLES: &str = "\
Examples:
  berth daemon
  berth --config ./berth.toml daemon
  berth --socket /tmp/b.sock --set table.path=/tmp/b.tasks --set hold.journal=/tmp/b.holds daemon
  berth --set hold.policy=fifo --log debug daemon

SIGTERM and SIGINT stop it and release everybody who is held. Settings are read at the start only: SIGHUP changes nothing.";

/// How often to check that the loop still turns, where the service manager does not say.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Of the scheduler's -20 to 19. The daemon uses a percent or two of a core, so nobody is kept waiting by it.
const NICENESS: i32 = -10;

/// Watch the GPUs of this host and serve what is seen: API, metrics, task table
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Stop when standard input is closed, as it is when the program that started this one dies
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start(&settings.log)?;
    sight::widen(&settings);
    go_first();
    let mode = settings.api.mode().context("api.socket_mode")?;
    // The socket comes first: a second daemon is refused before it touches anything of the first.
    let group = Some(settings.api.socket_group.clone()).filter(|group| !group.is_empty());
    let server = Server::bind(&settings.api.socket, &Access { mode, group })?;
    let port = settings.api.metrics_address().map(MetricsPort::bind).transpose()?;
    if let Some(address) = port.as_ref().and_then(MetricsPort::address) {
        tracing::info!(%address, "whoever reaches this may read metrics");
    }
    let feed = Arc::new(Feed::new());
    let (reporter, member) = node::join(&settings, Arc::clone(&feed))?;
    let reporter = Arc::new(reporter);
    // Until the very end: what the engine cannot undo is the guard's.
    let guard = guard::for_daemon(&settings)?;
    let publisher = Arc::clone(&feed);
    let reporting = member.as_ref().map(|member| member.reporting(&reporter, &settings));
    let pods = Pods::of(&settings, reporting)?;
    let told = pods.as_ref().map(Pods::said).unwrap_or_default();
    let choices = pods.as_ref().map(Pods::choices).unwrap_or_default();
    let _devices = pods::offer(&settings, choices, Arc::clone(&feed))?;
    let engine = engine::for_daemon(&settings, guard.guarded(), pods, move |snapshot, changes| {
        told.tell(changes);
        publisher.publish(snapshot, changes);
    })?;
    if let Some(halted) = engine.halted_map() {
        guard.hand_over(halted);
    }
    let stop_rx = stop_on_signal()?;
    if args.until_stdin_closes {
        stop_with_stdin()?;
    }
    ready(&settings);
    reporter.attend(engine.control());
    let control = LoopControl {
        engine: engine.control(),
        history: settings.history.clone(),
        reporter: Arc::clone(&reporter),
        questions: member.as_ref().and_then(Member::counters),
    };
    let asked = async {
        match member {
            Some(member) => member.serve(reporter).await,
            None => pending().await,
        }
    };
    live::runtime()?.block_on(serve((server, port), feed, &engine, control, asked, stop_rx))?;
    notify(&[NotifyState::Stopping]);
    engine.stop();
    drop(guard);
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Exits are dated when a thread of ours is told of them; on a busy host that must not wait for everybody else's work.
/// Threads started later inherit it.
fn go_first() {
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "no leave to go first; times of ends may be late on a busy host");
    }
}

/// Lets those who ask over the socket ask the loop, and read what is remembered.
struct LoopControl {
    engine: berth_engine::Control,
    history: berth_model::settings::History,
    reporter: Arc<Reporter>,
    /// What came of questions of the cluster; `None` where nobody may ask.
    questions: Option<Arc<Counters>>,
}

impl berth_api::Control for LoopControl {
    fn ask(&self, ask: Ask, reply: Reply) {
        self.engine.ask(ask, reply);
    }

    fn history(&self, query: &Query) -> Result<Told, String> {
        history::from_files(&self.history, query)
    }

    fn series(&self, caller: &Caller, query: &SeriesQuery) -> Result<SeriesTold, String> {
        series::from_files(&self.history, caller, query)
    }

    fn report(&self, snapshot: &Snapshot) -> Report {
        self.reporter.report(snapshot)
    }

    fn reports(&self) -> Option<ReportTotals> {
        self.questions.as_deref().map(node::totals)
    }
}

async fn serve(
    (server, port): (Server, Option<MetricsPort>),
    feed: Arc<Feed>,
    engine: &Engine,
    control: LoopControl,
    asked: impl Future<Output = Result<Infallible>>,
    stop_rx: oneshot::Receiver<()>,
) -> Result<()> {
    let stop = async {
        // The sender lives in the signal thread for as long as the process does.
        let _ = stop_rx.await;
    };
    let control: Arc<dyn berth_api::Control> = Arc::new(control);
    let scraped = async {
        match port {
            Some(port) => port.serve(Arc::clone(&feed), Arc::clone(&control)).await,
            None => pending().await,
        }
    };
    tokio::select! {
        served = server.serve(Arc::clone(&feed), Arc::clone(&control), stop) => Ok(served?),
        failed = scraped => failed.map(|never| match never {}).context("serving metrics"),
        result = watch(engine, &feed) => result,
        failed = asked => failed.map(|never| match never {}),
    }
}

/// Ends only if the loop did. The service manager is told that all is well only when there was a new snapshot since.
async fn watch(engine: &Engine, feed: &Feed) -> Result<()> {
    let watchdog = sd_notify::watchdog_enabled();
    let mut ticks = tokio::time::interval(watchdog.map_or(CHECK_EVERY, |limit| limit / 2));
    let mut last: Option<Arc<Snapshot>> = None;
    loop {
        ticks.tick().await;
        if !engine.is_running() {
            bail!("the loop that watches the GPUs has ended by itself; its panic message is above");
        }
        let latest = feed.latest();
        let is_new = match (&last, &latest) {
            (Some(last), Some(latest)) => !Arc::ptr_eq(last, latest),
            _ => latest.is_some(),
        };
        if is_new && watchdog.is_some() {
            notify(&[NotifyState::Watchdog]);
        }
        last = latest;
    }
}

/// The receiver gets one message, at the first signal that means stop.
pub fn stop_on_signal() -> Result<oneshot::Receiver<()>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("taking signals")?;
    let (stop_tx, stop_rx) = oneshot::channel();
    let wait = move || {
        for signal in &mut signals {
            if signal == SIGHUP {
                tracing::warn!("SIGHUP does nothing: settings are read at the start only, restart to change them");
                continue;
            }
            tracing::info!(signal = signal_name(signal), "stopping");
            break;
        }
        // Gone only if the server has ended already.
        let _ = stop_tx.send(());
    };
    std::thread::Builder::new().name("berth-signals".into()).spawn(wait).context("starting a thread")?;
    Ok(stop_rx)
}

/// The end of standard input is as good as a signal.
fn stop_with_stdin() -> Result<()> {
    let wait = || {
        // Whatever comes is read and dropped; an error is as good as the end.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        // Fails for no signal that exists.
        let _ = signal_hook::low_level::raise(SIGTERM);
    };
    std::thread::Builder::new().name("berth-stdin".into()).spawn(wait).context("starting a thread")?;
    Ok(())
}

fn ready(settings: &Settings) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        socket = %settings.api.socket.display(),
        table = %settings.table.path.display(),
        "ready"
    );
    notify(&[NotifyState::Ready]);
}

/// Does nothing without a service manager that listens.
pub fn notify(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
