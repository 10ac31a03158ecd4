//! GPUs as a resource of Kubernetes: offers shares of them to the kubelet, over its interface for device plugins, v1beta1.
//!
//! Which node and which GPU a pod gets is the placer's word, in an annotation; the shares make the kubelet count, and let a pod that asks for
//! one see a GPU. The kubelet forgets its plugins when it restarts, and removes their sockets: then everything is offered anew. Has a
//! thread of its own ("berth-devices").

mod allocate;
mod authority;
mod nodes;
mod pod_resources;
mod service;
mod shares;
#[rustfmt::skip]
#[allow(clippy::all, clippy::pedantic, missing_debug_implementations, reason = "made by a program")]
mod v1beta1;

#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::stream;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};
use tonic::transport::{Channel, Endpoint, Server};

pub use allocate::Ways;
pub use nodes::Roots;
pub use shares::Gpu;

use self::service::{OPTIONS, Service};
use self::v1beta1::RegisterRequest;
use self::v1beta1::device_plugin_server::DevicePluginServer;
use self::v1beta1::registration_client::RegistrationClient;
use super::agent::Choices;
use super::{RESOURCE, cdi};

const VERSION: &str = "v1beta1";
/// Of ours and of the kubelet's, in the directory it watches.
const OWN_SOCKET: &str = "berth.sock";
const KUBELET_SOCKET: &str = "kubelet.sock";
/// Between two looks at GPUs and sockets.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A kubelet that does not answer is asked again.
const REGISTER_WITHIN: Duration = Duration::from_secs(5);

/// What a plugin needs.
pub struct Options {
    /// The kubelet's directory.
    pub dir: PathBuf,
    /// Of each GPU.
    pub shares: u16,
    /// The GPUs there are; `None` while nobody knows. Must not block.
    pub gpus: Box<dyn Fn() -> Option<Vec<Gpu>> + Send>,
    pub choices: Choices,
    pub ways: Ways,
    /// Where runtimes look for descriptions of devices; `None` writes none.
    pub cdi_dir: Option<PathBuf>,
}

/// Offers shares for as long as it lives.
#[derive(Debug)]
pub struct Plugin {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, thiserror::Error)]
enum PluginError {
    #[error("cannot listen on `{path}`")]
    Listen {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the kubelet is not there: no `{path}`")]
    NoKubelet { path: PathBuf },
    #[error("the kubelet did not take it: {0}")]
    Refused(Box<tonic::Status>),
    #[error("the kubelet did not answer: {0}")]
    Silent(#[from] tonic::transport::Error),
    #[error("the kubelet did not answer within {} s", REGISTER_WITHIN.as_secs())]
    Slow,
}

impl Plugin {
    /// Offers in the background, now or when there is a kubelet. Fails only without a thread.
    pub fn start(options: Options) -> io::Result<Plugin> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stop_rx) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = keep_up(options) => {}
                    // Its sender is gone.
                    _ = stop_rx => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("berth-devices".into()).spawn(run)?;
        Ok(Plugin { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Never ends. What goes wrong is told when it changes, and tried again.
async fn keep_up(options: Options) {
    let Options { dir, shares, gpus, choices, mut ways, cdi_dir } = options;
    ways.by_cdi = cdi_dir.is_some();
    let (devices_tx, devices) = watch::channel(Vec::new());
    let roots = ways.roots.clone();
    let kubelet = pod_resources::socket(&dir);
    let service = Service { devices, choices: choices.clone(), ways: Arc::new(ways), kubelet: kubelet.clone() };
    let look = async {
        loop {
            if let Some(gpus) = gpus() {
                let now = shares::devices(&gpus, shares);
                let is_new = devices_tx.send_if_modified(|last| std::mem::replace(last, now.clone()) != now);
                if let Some(dir) = cdi_dir.as_deref().filter(|_| is_new) {
                    describe(dir, &gpus, &roots);
                }
            }
            if choices.is_wanted()
                && let Ok(given) = pod_resources::given(&kubelet).await
            {
                choices.given(&given);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let offer = async {
        let mut said = String::new();
        loop {
            if let Err(error) = offer(&dir, service.clone()).await {
                let says = error.to_string();
                if says != said {
                    tracing::warn!(error = says, "no shares of GPUs are offered to the kubelet");
                    said = says;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        () = look => {}
        () = offer => {}
    }
}

/// For runtimes. Without it containers get device files as ever.
fn describe(dir: &Path, gpus: &[Gpu], roots: &Roots) {
    let described = |gpu: &Gpu| cdi::CdiGpu { uuid: gpu.uuid.clone(), files: roots.files(slice::from_ref(&gpu.uuid)) };
    if let Err(error) = cdi::write(dir, &gpus.iter().map(described).collect::<Vec<_>>()) {
        tracing::warn!(%error, "runtimes are not told of the GPUs");
    }
}

/// Until the kubelet is another, or has forgotten us.
async fn offer(dir: &Path, service: Service) -> Result<(), PluginError> {
    let (own, kubelet) = (dir.join(OWN_SOCKET), dir.join(KUBELET_SOCKET));
    let id = inode(&kubelet).ok_or_else(|| PluginError::NoKubelet { path: kubelet.clone() })?;
    // A socket of an earlier daemon is in the way.
    let _ = std::fs::remove_file(&own);
    let failed = |source| PluginError::Listen { path: own.clone(), source };
    let listener = UnixListener::bind(&own).map_err(failed)?;
    let own_id = inode(&own);
    let incoming = stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| authority::named(stream));
        Some((accepted, listener))
    });
    let server = Server::builder().add_service(DevicePluginServer::new(service));
    let stay = async {
        register(&kubelet).await?;
        tracing::info!(resource = RESOURCE, "shares of GPUs are offered to the kubelet");
        while inode(&kubelet) == Some(id) && inode(&own) == own_id {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        tracing::info!("the kubelet has restarted: everything is offered anew");
        Ok(())
    };
    // The kubelet calls back while it is told of us.
    tokio::select! {
        stayed = stay => stayed,
        served = server.serve_with_incoming(incoming) => Ok(served?),
    }
}

async fn register(kubelet: &Path) -> Result<(), PluginError> {
    let told = async {
        let channel = channel(kubelet).await?;
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: OWN_SOCKET.to_owned(),
            resource_name: RESOURCE.to_owned(),
            options: Some(OPTIONS),
        };
        let answer = RegistrationClient::new(channel).register(request).await;
        answer.map(drop).map_err(|status| PluginError::Refused(Box::new(status)))
    };
    tokio::time::timeout(REGISTER_WITHIN, told).await.map_err(|_| PluginError::Slow)?
}

/// To whoever listens on a socket.
async fn channel(socket: &Path) -> Result<Channel, tonic::transport::Error> {
    let socket = socket.to_owned();
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(socket).await?)) }
    });
    // The address is not used: the connector knows the socket.
    Endpoint::from_static("http://kubelet").connect_with_connector(connect).await
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|meta| meta.ino())
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("dir", &self.dir).field("shares", &self.shares).finish_non_exhaustive()
    }
}
