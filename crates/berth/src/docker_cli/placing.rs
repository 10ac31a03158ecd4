//! A service with a place: the placer is asked, then the client makes it. Nothing is made where nobody takes it.
//!
//! The place is kept by the connection to the placer while the client works. What the client makes has no container: the placer starts it
//! where its place is still its own, and else where there is one. So nothing is started twice or too late, whoever dies in between: not if
//! this process does and the client lives on, nor if the placer does. If the client fails, the engine is asked whether the service was made
//! all the same, by the placement in its label; only if it was not is the place given back. Nothing is tried twice.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use berth_api::client::PlacerClient;
use berth_cluster::placer::client::{Client as Placer, ClientError, Held};
use berth_model::cluster::api::{Node, PlaceAnswer, Reserved};
use berth_model::cluster::{PLACEMENT_LABEL, PlacementId, Refusals};

use super::client::Client;
use super::service::{self, Creation, Kind};
use super::{FAILED, NOT_FOUND, NOT_STARTED, REFUSED, code, failed, say, show};
use crate::cli::Global;
use crate::columns::printable;
use crate::{live, settings};

/// Nobody takes it: as `berth admit` says no.
pub const NOBODY: u8 = 6;
/// Names the placer's socket where the settings file does not.
const SOCKET: &str = "BERTH_PLACER_SOCKET";

const FLAGS: &str = "
Of berth, to be placed by:
      --deadline duration   How long a unit of its work may take: seconds, or with a unit (1500ms, 9s, 2m)
      --memory bytes        GPU memory it needs, such as 20GiB
      --takes duration      GPU time a unit takes by itself, instead of what the image's history says
      --unit string         What the deadline is for: `task`, or `burst` for each burst of a server
      --gpus int            GPUs it needs on one node (default 1)
      --explain             Tell of every node why it would take it or not
";

/// `docker berth service create`, by the settings file that everybody has.
pub fn from_plugin(globals: &[OsString], args: &[OsString]) -> ExitCode {
    let settings = match settings::load(&Global::default()) {
        Ok(settings) => settings,
        Err(error) => return failed(&error, FAILED),
    };
    let named = std::env::var_os(SOCKET).filter(|path| !path.is_empty()).map(PathBuf::from);
    create(globals, args, Kind::Service, named.unwrap_or(settings.placer.socket))
}

/// Whether `--cluster` is among the flags behind `berth run`. The client is asked for its flags only where the word is there at all.
pub fn is_for_cluster(args: &[OsString]) -> bool {
    let flags = || Client::find().ok()?.service_flags();
    args.iter().any(|arg| arg == "--cluster") && flags().is_some_and(|flags| service::is_for_cluster(args, &flags))
}

/// `globals`: flags of the client that stand before `service create`; `args` behind it.
pub fn create(globals: &[OsString], args: &[OsString], kind: Kind, socket: PathBuf) -> ExitCode {
    let client = match Client::find() {
        Ok(client) => client,
        Err(error) => return failed(&error, NOT_FOUND),
    };
    let Some(flags) = client.service_flags() else {
        return failed(&"the help of 'docker service create' does not tell which flags take a value", REFUSED);
    };
    let creation = match service::read(args, &flags) {
        Ok(creation) if creation.is_help => return help(&client),
        Ok(creation) => creation,
        Err(error) => return failed(&error, REFUSED),
    };
    let runtime = match live::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("{error:#}"), FAILED),
    };
    if creation.explains {
        let asked = runtime.block_on(PlacerClient::new(&socket).place(&creation.request));
        asked.iter().for_each(|answer| explain(&answer.nodes));
    }
    let placer = Placer::new(&socket);
    let held = match runtime.block_on(placer.reserve(&creation.request)) {
        Ok(held) => held,
        Err(ClientError::Nobody(answer)) => return nobody(&answer),
        Err(error @ ClientError::Wrong { .. }) => return failed(&error, REFUSED),
        Err(error) => return failed(&format!("{:#}", anyhow::Error::from(error)), FAILED),
    };
    if !is_of_this_swarm(&client, globals, &held.reserved) {
        let _ = runtime.block_on(placer.release(held.reserved.placement));
        return failed(&"the client's engine is no manager of the swarm that the placer at hand places for", FAILED);
    }
    say(&format!("berth: {}", placed(&held.reserved)));
    let made = make(&client, globals, &creation, kind, &held);
    if made != ExitCode::SUCCESS && !was_made(&client, globals, held.reserved.placement) {
        // If it cannot be told, the place is given back when the engine has told of nothing for a while.
        let _ = runtime.block_on(placer.release(held.reserved.placement));
    }
    made
}

/// The client's own exit code.
fn make(client: &Client, globals: &[OsString], creation: &Creation, kind: Kind, held: &Held) -> ExitCode {
    let words = ["service", "create"].map(OsString::from);
    let args = [globals, &words, &creation.placed(&held.reserved, kind)].concat();
    match client.child(&args).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => code(status),
        Err(error) => failed(&format!("{}: {error}", client.path().display()), NOT_STARTED),
    }
}

/// Whether the client, wherever its context leads, asks an engine that knows the chosen node. What is wrong otherwise, it says itself.
fn is_of_this_swarm(client: &Client, globals: &[OsString], reserved: &Reserved) -> bool {
    let words = ["node", "inspect", "--format", "{{.ID}}", reserved.choice.node.as_str()].map(OsString::from);
    let status = client.child(&[globals, &words].concat()).stdin(Stdio::null()).stdout(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Whether the engine has a service of this placement, whatever the client said. If it cannot be asked it may have.
fn was_made(client: &Client, globals: &[OsString], id: PlacementId) -> bool {
    let words = ["service", "ls", "--quiet", "--filter"].map(OsString::from);
    let args = [globals, &words, &[format!("label={PLACEMENT_LABEL}={id}").into()]].concat();
    let output = client.child(&args).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let was_made = output.is_ok_and(|output| !output.status.success() || !output.stdout.is_empty());
    if was_made {
        say(&format!(
            "berth: the client failed, but the engine may have made the service: its label is {PLACEMENT_LABEL}={id}"
        ));
    }
    was_made
}

fn help(client: &Client) -> ExitCode {
    let output = client.child(&["service", "create", "--help"].map(OsString::from)).output();
    match output {
        Ok(output) => show(&format!("{}{FLAGS}", String::from_utf8_lossy(&output.stdout))),
        Err(error) => failed(&format!("{}: {error}", client.path().display()), NOT_STARTED),
    }
}

/// `placed on n2, GPU-…: the best of 2 nodes that take it (1 does not: stale 1)`.
fn placed(reserved: &Reserved) -> String {
    let node = reserved.name.as_deref().unwrap_or(reserved.choice.node.as_str());
    let gpus = berth_cluster::swarm::labels::gpus(&reserved.choice);
    let best = match reserved.candidates {
        0 | 1 => "the only node that takes it".to_owned(),
        some => format!("the best of {some} nodes that take it"),
    };
    let others = match reserved.refusals.total() {
        0 => String::new(),
        _ => format!(" (not: {})", counts(&reserved.refusals)),
    };
    printable(&format!("placed on {node}, {gpus}: {best}{others}"))
}

fn nobody(answer: &PlaceAnswer) -> ExitCode {
    let counts = match answer.refusals.total() {
        0 => "the cluster has no nodes".to_owned(),
        _ => counts(&answer.refusals),
    };
    let more = if answer.nodes.is_empty() { "; --explain tells of each" } else { "" };
    say(&format!("berth: no node takes it, nothing was created: {counts}{more}"));
    ExitCode::from(NOBODY)
}

/// `would-be-late 2, stale 1`.
fn counts(refusals: &Refusals) -> String {
    refusals.0.iter().map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join(", ")
}

fn explain(nodes: &[Node]) {
    for node in nodes {
        let name = node.name.as_deref().unwrap_or(node.node.as_str());
        let why = node.why_not.as_ref().map_or_else(|| "takes it".to_owned(), |why| format!("no: {why}"));
        let refused = node.refused.as_ref().map(|refused| format!(" ({refused})")).unwrap_or_default();
        say(&printable(&format!("berth: {name}: {why}{refused}")));
    }
}
