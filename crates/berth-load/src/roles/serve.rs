//! A server of requests: each is a CUDA graph of short kernels (or the kernels themselves), and they arrive by a clock, not when the
//! last one is done. So a delay is seen by everybody who comes meanwhile, as it is in a real server.

use std::time::{Duration, Instant};

use super::arrivals::Arrivals;
use super::calibration::Given;
use super::gpu::{Gpu, Recorded, Spin};
use super::words::{Input, Ready, Said, Served, Window, Word, say};
use super::{Place, RoleError};
use crate::driver::CallError;
use crate::record::Stamp;
use crate::sys::work::Waiting;

/// Half of the threads there is room for: small batches do not fill a GPU.
const BLOCKS_PER_SM: u32 = 4;
const WARM_UP_REQUESTS: usize = 20;
/// So many requests say what one takes.
const SERVICE_REQUESTS: u32 = 50;
/// A sleeper wakes this much too late at worst; the rest is waited for with open eyes.
const SLEEPS_LATE: Duration = Duration::from_micros(300);
/// A server that cannot keep up serves its queue for so many windows in all.
const GIVES_UP_AFTER: u32 = 2;

const EXAMPLES: &str = "\
Examples:
  berth load serve --rate 200 --seconds 5 <<< go
  berth load serve --eager             kernels one by one, not as a graph";

/// Serve requests that arrive at random, and print their latencies
///
/// Says `{"event":"ready"}`, then serves at each line `go` or `go RATE SECONDS [SEED]` of its input and prints one line of latencies. `service` asks what one request takes without a queue, `kernels` how many it has submitted. Ends with its input.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Requests a second, unless the line says otherwise
    #[arg(long, value_name = "NUMBER", default_value_t = 200.0)]
    rate: f64,
    /// For how many seconds, unless the line says otherwise
    #[arg(long, value_name = "NUMBER", default_value_t = 5.0)]
    seconds: f64,
    /// Kernels of a request
    #[arg(long, value_name = "COUNT", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    kernels: u32,
    /// How long each takes alone
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 20.0)]
    kernel_us: f64,
    /// Launch the kernels one by one, not as a graph
    #[arg(long)]
    eager: bool,
    /// Seed of the arrivals, unless the line says otherwise: every window has the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    place: Place,
}

/// What is done for a request.
enum Request {
    Graph(Recorded),
    Kernels(Vec<Spin>),
}

impl Request {
    fn serve(&self, gpu: &Gpu) -> Result<(), CallError> {
        match self {
            Self::Graph(graph) => gpu.replay(graph)?,
            Self::Kernels(kernels) => kernels.iter().try_for_each(|kernel| gpu.launch(*kernel))?,
        }
        gpu.synchronize()
    }
}

pub fn run(args: &Args) -> Result<(), RoleError> {
    let gpu = Gpu::open(&args.place, Waiting::Spinning)?;
    let calibration = args.given.complete(&gpu, BLOCKS_PER_SM)?;
    let kernels = vec![calibration.kernel(args.kernel_us); args.kernels as usize];
    let graph = if args.eager { None } else { gpu.graph(&kernels)? };
    let is_graph = graph.is_some();
    let request = graph.map_or(Request::Kernels(kernels), Request::Graph);
    for _ in 0..WARM_UP_REQUESTS {
        request.serve(&gpu)?;
    }
    let input = Input::listen();
    say(&Said::Ready(Ready { calibration: Some(calibration), graph: Some(is_graph) }))?;
    while let Some(word) = input.next()? {
        match word {
            Word::Service => say(&Said::Service { ms: service_ms(&gpu, &request)? })?,
            Word::Kernels => say(&Said::Kernels { submitted: gpu.submitted() })?,
            Word::Go(window) => {
                let window = window.unwrap_or(Window { rate: args.rate, seconds: args.seconds, seed: None });
                if let Some(served) = serve(&gpu, &request, window, window.seed.unwrap_or(args.seed))? {
                    say(&Said::Served(served))?;
                }
            }
        }
    }
    Ok(())
}

fn service_ms(gpu: &Gpu, request: &Request) -> Result<f64, CallError> {
    let begun = Instant::now();
    for _ in 0..SERVICE_REQUESTS {
        request.serve(gpu)?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e3 / f64::from(SERVICE_REQUESTS))
}

/// `None` if no request was to arrive.
fn serve(gpu: &Gpu, request: &Request, window: Window, seed: u64) -> Result<Option<Served>, CallError> {
    let length = Duration::from_secs_f64(window.seconds.min(86_400.0));
    let (begun, from) = (Instant::now(), Stamp::now());
    let (mut latencies_ms, mut given_up) = (Vec::new(), 0);
    // Of those that found nobody before them, and of those that had queued.
    let mut taken_ms = [Vec::new(), Vec::new()];
    for due in Arrivals::new(seed, window.rate).take_while(|due| *due < length) {
        if begun.elapsed() < length * GIVES_UP_AFTER {
            let has_queued = begun.elapsed() > due;
            await_instant(begun + due);
            let started = Instant::now();
            request.serve(gpu)?;
            taken_ms[usize::from(has_queued)].push(started.elapsed().as_secs_f64() * 1e3);
        } else {
            given_up += 1;
        }
        latencies_ms.push((begun.elapsed() - due).as_secs_f64() * 1e3);
    }
    Ok(Served::of(window.rate, (from.mono_ns, Stamp::now().mono_ns), latencies_ms, given_up, taken_ms))
}

/// Returns at once if it has passed.
fn await_instant(instant: Instant) {
    let left = instant.saturating_duration_since(Instant::now());
    if left > SLEEPS_LATE {
        std::thread::sleep(left - SLEEPS_LATE);
    }
    while Instant::now() < instant {
        std::hint::spin_loop();
    }
}
