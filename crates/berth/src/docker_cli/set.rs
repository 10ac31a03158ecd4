//! Deadlines other than a container was made with: set since, or put within the bounds. The daemon knows them, if there is one and it
//! answers at once; the list of containers does not wait for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_api::Client;
use berth_model::control::DeadlineStanding;
use berth_model::snapshot::DeadlineRow;
use berth_model::{Runtime, Settings, TenantKey};

use super::kernel_level::Offer;
use super::ps::SetDeadline;
use crate::cli::Global;
use crate::{live, mps, settings};

/// Names the daemon's socket where the settings file does not.
const SOCKET: &str = "BERTH_SOCKET";
/// A daemon that is there answers within some milliseconds.
const MOMENT: Duration = Duration::from_millis(200);
/// More would not fit into a command line with room to spare.
const MOST: usize = 500;

/// Nothing where the daemon cannot be asked: what a container was made with is shown then.
pub fn deadlines(global: &Global) -> Vec<SetDeadline> {
    let told = ask(global).unwrap_or_default();
    told.into_iter().filter_map(set).take(MOST).collect()
}

/// What the settings of this host have for containers that take part at the level of kernels.
pub fn kernel_level(global: &Global) -> Result<Offer, String> {
    let kernels = load(global).map_err(|error| format!("{error:#}"))?.kernels;
    if !kernels.enabled {
        return Err(
            "nobody takes part here: set `kernels.enabled = true` in berth's settings and restart it".to_owned()
        );
    }
    if !kernels.library.exists() {
        return Err(format!("there is no {} (kernels.library)", kernels.library.display()));
    }
    let text = |path: &Path| path.display().to_string();
    Ok(Offer { library: text(&kernels.library), socket: text(&kernels.socket), has_mps: mps::is_there() })
}

fn load(global: &Global) -> anyhow::Result<Settings> {
    let named = std::env::var_os(SOCKET).filter(|path| !path.is_empty()).map(PathBuf::from);
    Ok(settings::load(&Global { socket: global.socket.clone().or(named), ..global.clone() })?)
}

fn ask(global: &Global) -> Option<Vec<DeadlineStanding>> {
    let settings = load(global).ok()?;
    let client = Client::new(&settings.api.socket);
    let answer = async { tokio::time::timeout(MOMENT, client.deadlines(None)).await };
    live::runtime().ok()?.block_on(answer).ok()?.ok()
}

fn set(standing: DeadlineStanding) -> Option<SetDeadline> {
    let TenantKey::Container { runtime: Runtime::Docker, id } = standing.tenant else { return None };
    SetDeadline::new(id.0, text(standing.given.is_some(), standing.counts.as_ref())?)
}

/// `None` where it is what the label says.
fn text(is_said: bool, counts: Option<&DeadlineRow>) -> Option<String> {
    let set = if is_said { " (set)" } else { "" };
    match counts.map(|counts| (counts.deadline, counts.asked)) {
        Some((deadline, Some(asked))) => Some(format!("{asked} -> {deadline}{set}")),
        Some((deadline, None)) => is_said.then(|| format!("{deadline}{set}")),
        None => is_said.then(|| "- (cleared)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::deadlines;

    #[test]
    fn what_counts_is_shown_where_it_is_not_what_the_label_says() {
        let row = |name: &str| deadlines().tasks.into_iter().find(|row| row.container_name == name).unwrap().deadline;
        let (plain, bounded) = (row("trainer"), row("eager"));
        assert_eq!(text(false, plain.as_ref()), None);
        assert_eq!(text(true, plain.as_ref()).as_deref(), Some("9s (set)"));
        assert_eq!(text(false, bounded.as_ref()).as_deref(), Some("1ms -> 5s"));
        assert_eq!(text(true, bounded.as_ref()).as_deref(), Some("1ms -> 5s (set)"));
        assert_eq!((text(true, None).as_deref(), text(false, None)), (Some("- (cleared)"), None));
    }
}
