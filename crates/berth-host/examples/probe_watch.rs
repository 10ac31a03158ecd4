//! Prints every moment the probes see, one JSON line each, until standard input ends:
//! `cargo run -p berth-host --example probe_watch [LIBRARY…]`, as root. What it has seen in all goes to standard error.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use berth_host::probes::{Options, ProbeError, Probes};
use berth_host::procs::Registry;
use berth_model::Event;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), ProbeError> {
    let named: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let libraries = if named.is_empty() { Options::default().libraries } else { named };
    let (event_tx, event_rx) = mpsc::channel();
    let registry = Registry::new("/proc".as_ref(), event_tx.clone()).expect("/proc can be watched");
    let options = Options { libraries, ..Options::default() };
    let probes = Probes::start(options, move |pid| registry.resolve(pid), event_tx)?;
    eprintln!(
        "watching, {}: {:?}",
        if probes.multi() { "many at once" } else { "perf events" },
        probes.stats().libraries
    );
    thread::spawn(move || {
        for event in event_rx {
            if let Event::Moment { process, moment, at } = event {
                println!("{{\"pid\": {}, \"moment\": \"{moment:?}\", \"at_ns\": {}}}", process.pid, at.0);
            }
        }
    });
    // Its end is all that matters.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    eprintln!("{:?}", probes.stats());
    Ok(())
}
