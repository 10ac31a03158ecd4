//! Deadlines that people have set since a container was made. The daemon knows them, if there is one and it answers at once; the
//! list of containers does not wait for it.

use std::path::PathBuf;
use std::time::Duration;

use berth_api::Client;
use berth_model::control::DeadlineStanding;
use berth_model::{Runtime, TenantKey};

use super::ps::SetDeadline;
use crate::cli::Global;
use crate::{live, settings};

/// Names the daemon's socket where the settings file does not.
const SOCKET: &str = "BERTH_SOCKET";
/// A daemon that is there answers within some milliseconds.
const MOMENT: Duration = Duration::from_millis(200);
/// More would not fit into a command line with room to spare.
const MOST: usize = 500;

/// Nothing where the daemon cannot be asked: what a container was made with is shown then.
pub fn deadlines() -> Vec<SetDeadline> {
    let told = ask().unwrap_or_default();
    told.into_iter().filter_map(set).take(MOST).collect()
}

fn ask() -> Option<Vec<DeadlineStanding>> {
    let named = std::env::var_os(SOCKET).filter(|path| !path.is_empty()).map(PathBuf::from);
    let settings = settings::load(&Global { socket: named, ..Global::default() }).ok()?;
    let client = Client::new(&settings.api.socket);
    let answer = async { tokio::time::timeout(MOMENT, client.deadlines(None)).await };
    live::runtime().ok()?.block_on(answer).ok()?.ok()
}

fn set(standing: DeadlineStanding) -> Option<SetDeadline> {
    let TenantKey::Container { runtime: Runtime::Docker, id } = standing.tenant else { return None };
    standing.given?;
    let text = match standing.counts {
        Some(counts) => format!("{} (set)", counts.deadline),
        None => "- (cleared)".to_owned(),
    };
    SetDeadline::new(id.0, text)
}
