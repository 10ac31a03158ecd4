//! The placer beside an API server: follows its lists, and answers its scheduler.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use berth_model::settings::PlacerSettings;
use kube::{Api, Client, Config};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::client::ApiPods;
use super::events::{self, Events};
use super::extender::Pods;
use super::lease::Lease;
use super::placement_of;
use super::pods::{Adopted, PlacedPods, Standing};
use super::ready::Ready;
use super::reports::Reports;
use super::routes::{Served, router};
use super::tls::{self, Files, Tls, TlsError};
use super::waiting::Touch;
use super::watch::{Nodes, WATCHED_FOR, follow, watched};
use crate::frame::ClusterKey;
use crate::placer::Placer;

/// Pods that have ended take no place.
const NOT_OVER: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// Pods that wait for their GPUs to be written on them.
const MOST_ADOPTED: usize = 1_024;
/// Between two looks at places that nobody came to, and at pods that wait for one.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// From when it says that it is not ready until nobody asks any more: the proxies of all nodes have to hear of it.
const HEARD_WITHIN: Duration = Duration::from_secs(5);
/// Of a call to the API server.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("finding the API server: neither a kubeconfig nor a service account can be read")]
    NoConfig(#[source] kube::config::InferConfigError),
    #[error("setting up the connection to the API server")]
    Client(#[source] Box<kube::Error>),
    #[error(
        "placer.listen: an address and port is needed for kube-scheduler and the API server, such as `0.0.0.0:7278`"
    )]
    NoAddress,
    #[error("listening on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("a part of the placer has ended, and it would go on by what it knew then")]
    Ended(#[source] Option<JoinError>),
}

/// Until `stop`, or until it cannot go on. The API server is that of `KUBECONFIG`, or of the pod it runs in. `place` is what only one living
/// placer can have, such as its host and socket.
///
/// When it is to stop, it says first that it is not ready any more, and answers for as long as others may need to hear of it.
pub async fn serve(
    placer: Arc<Placer>,
    settings: &PlacerSettings,
    key: ClusterKey,
    place: &str,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = settings.address().ok_or(ServeError::NoAddress)?;
    let tls = Tls::load(files(settings))?;
    let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })?;
    let client = client().await?;
    let mut lease = Lease::new(&client, place, Arc::clone(&placer));
    let (events, told) = Events::new();
    let served = Served::new(placer, ApiPods::new(client.clone()), events, &settings.user);

    let mut tasks = JoinSet::new();
    let reports = Reports::new(Arc::clone(&served.placer), key, settings.stale_after.get());
    let standing = follow_all(&mut tasks, &client, &served, reports);
    tasks.spawn({
        let (pods, placer) = (served.pods.clone(), Arc::clone(&served.placer));
        async move { events::tell(&pods, &placer, told).await }
    });
    tasks.spawn(look_again(served.clone(), standing));
    tracing::info!(%address, "the placer answers kube-scheduler and the API server");
    let ended = tokio::select! {
        () = tls::serve(listener, tls, router(served.clone())) => Err(ServeError::Ended(None)),
        ended = tasks.join_next() => Err(ServeError::Ended(ended.and_then(Result::err))),
        () = lease.hold() => Err(ServeError::Ended(None)),
        () = drained(stop, &served.ready) => Ok(()),
    };
    // Another may take the lease from here on: what is under way is ended first, and nothing is begun.
    let _none = served.no_more_bindings().await;
    lease.give_up().await;
    ended
}

fn files(settings: &PlacerSettings) -> Files {
    let PlacerSettings { tls_certificate, tls_key, client_ca, .. } = settings;
    let client_ca = Some(client_ca.clone()).filter(|path| !path.as_os_str().is_empty());
    Files { certificate: tls_certificate.clone(), key: tls_key.clone(), client_ca }
}

/// Returns when everybody has heard that it stops.
async fn drained(stop: impl Future<Output = ()>, ready: &Ready) {
    stop.await;
    tracing::info!("stops when others have heard of it");
    ready.stops();
    tokio::time::sleep(HEARD_WITHIN).await;
}

async fn client() -> Result<Client, ServeError> {
    let mut config = Config::infer().await.map_err(ServeError::NoConfig)?;
    // The scheduler tries a binding again, and each watch waits by itself: nothing is to be tried for minutes in between.
    config.default_retry = false;
    config.connect_timeout = Some(ANSWER_WITHIN);
    config.write_timeout = Some(ANSWER_WITHIN);
    // A watch on a connection that nobody is at the other end of any more tells nothing, and does not end.
    config.read_timeout = Some(WATCHED_FOR + ANSWER_WITHIN);
    Client::try_from(config).map_err(|error| ServeError::Client(Box::new(error)))
}

/// A report of a node that is not known is not believed, and where a pod stands that others have bound follows from reports: so each list
/// is told when the one before it is complete.
fn follow_all(tasks: &mut JoinSet<()>, client: &Client, served: &Served, reports: Reports) -> Standing {
    let Served { placer, ready, pods, waiting, .. } = served;
    let all = watched();
    let [of_nodes, of_reports, of_pods] = ["nodes", "gpunodes", "pods"].map(|what| ready.expects(what));
    let (nodes_told, reports_told) = (of_nodes.told(), of_reports.told());
    tasks.spawn(follow(Api::all(client.clone()), all.clone(), of_nodes, Nodes::new(Arc::clone(placer))));
    let following = follow(Api::all(client.clone()), all.clone(), of_reports, reports);
    tasks.spawn(async move {
        nodes_told.all().await;
        following.await;
    });
    let (sender, adopted) = mpsc::channel(MOST_ADOPTED);
    let standing = Standing::new(Arc::clone(placer), sender);
    let placed = PlacedPods::new(standing.clone(), Arc::clone(waiting));
    let following = follow(Api::all(client.clone()), all.fields(NOT_OVER), of_pods, placed);
    tasks.spawn(async move {
        reports_told.all().await;
        following.await;
    });
    tasks.spawn(write_choices(Arc::clone(placer), pods.clone(), adopted));
    standing
}

/// Writes on pods which GPUs they have, where others have bound them. A placer that does not act keeps them until it does.
async fn write_choices(placer: Arc<Placer>, pods: ApiPods, mut adopted: mpsc::Receiver<Adopted>) {
    while let Some(Adopted { namespace, name, uid, choice }) = adopted.recv().await {
        while placer.acts_for().is_none() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        // It is over, or another placer has chosen meanwhile.
        if placer.book().choice(placement_of(&uid)) != Some(&choice) {
            continue;
        }
        match tokio::time::timeout(ANSWER_WITHIN, pods.choose(&namespace, &name, &uid, &choice.gpus)).await {
            Ok(Ok(())) => placer.has_placed(true),
            Ok(Err(error)) => {
                tracing::warn!(pod = format!("{namespace}/{name}"), %error, "its GPUs are not written on it");
            }
            Err(_) => tracing::warn!(pod = format!("{namespace}/{name}"), "its GPUs are not written on it: no answer"),
        }
    }
}

/// Ends places that nobody came to, and has the scheduler try pods again that a node would take by now.
async fn look_again(served: Served, standing: Standing) {
    let Served { placer, pods, waiting, .. } = served;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        standing.settle();
        let touched = {
            let (mut book, now) = (placer.book(), placer.now());
            book.expire(now);
            book.forget_untold(now);
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            match placer.acts_for() {
                Some(_) => waiting.touched(now, |request| book.takes(request, now)),
                None => Vec::new(),
            }
        };
        for Touch { namespace, name, uid } in touched {
            match tokio::time::timeout(ANSWER_WITHIN, pods.touch(&namespace, &name, &uid)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(name, %error, "the scheduler is not told to try it again"),
                // The others would have to wait as long.
                Err(_) => break,
            }
        }
    }
}
