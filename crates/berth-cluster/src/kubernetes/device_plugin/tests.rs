//! The plugin and a kubelet that speaks the same messages over the same sockets.

use std::convert::Infallible;
use std::sync::{Mutex, mpsc};
use std::task::{self, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Runtime;
use tonic::codegen::http;
use tonic::{Request, Response, Status, body::Body};
use tonic_prost::ProstCodec;

use super::pod_resources::{Listed, ListedContainer, ListedDevices, ListedPod, Nothing};
use super::v1beta1::device_plugin_client::DevicePluginClient;
use super::v1beta1::registration_server::{Registration, RegistrationServer};
use super::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, ContainerPreferredAllocationRequest, Empty, ListAndWatchResponse,
    PreferredAllocationRequest,
};
use super::*;
use berth_model::GpuUuid;
use berth_model::taking_part::Share;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);

/// A kubelet with its sockets; gone when dropped, with all sockets there, as a kubelet that starts does.
struct Kubelet {
    dir: PathBuf,
    registered: mpsc::Receiver<RegisterRequest>,
    /// The pods it knows, and what it has given them.
    given: Lists,
    /// `None` only while being dropped.
    runtime: Option<Runtime>,
}

struct Hears(mpsc::Sender<RegisterRequest>);

#[tonic::async_trait]
impl Registration for Hears {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let _ = self.0.send(request.into_inner());
        Ok(Response::new(Empty {}))
    }
}

/// What it lists, and that it was asked.
#[derive(Debug, Clone, Default)]
struct Lists(Arc<Mutex<Listed>>, Arc<tokio::sync::Notify>);

impl tonic::server::NamedService for Lists {
    const NAME: &'static str = "v1.PodResourcesLister";
}

impl tower::Service<http::Request<Body>> for Lists {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let listed = self.0.lock().unwrap().clone();
        self.1.notify_one();
        async move {
            let list =
                tower::service_fn(move |_: Request<Nothing>| std::future::ready(Ok(Response::new(listed.clone()))));
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Listed, Nothing>::default());
            Ok(grpc.unary(list, request).await)
        }
        .boxed()
    }
}

/// A pod in namespace `n` with one container, and the shares it has.
fn listed(name: &str, shares: &[&str]) -> ListedPod {
    let ids = shares.iter().map(|share| (*share).to_owned()).collect();
    let devices = vec![ListedDevices { resource: RESOURCE.to_owned(), ids }];
    let container = ListedContainer { name: "main".to_owned(), devices };
    ListedPod { name: name.to_owned(), namespace: "n".to_owned(), containers: vec![container] }
}

impl Kubelet {
    fn start(dir: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (sender, registered) = mpsc::channel();
        let given = Lists::default();
        let server = Server::builder().add_service(RegistrationServer::new(Hears(sender)));
        serve(&runtime, server, &plugins(dir).join(KUBELET_SOCKET));
        serve(&runtime, Server::builder().add_service(given.clone()), &pod_resources::socket(&plugins(dir)));
        Self { dir: dir.to_owned(), registered, given, runtime: Some(runtime) }
    }

    fn plugin(&self) -> RegisterRequest {
        self.registered.recv_timeout(PATIENCE).unwrap()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        // Does not wait, which one who is asked for an answer must not do.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        std::fs::remove_file(pod_resources::socket(&plugins(&self.dir))).unwrap();
        for entry in std::fs::read_dir(plugins(&self.dir)).unwrap().flatten() {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

fn serve(runtime: &Runtime, server: tonic::transport::server::Router, socket: &Path) {
    let listener = {
        let _inside = runtime.enter();
        UnixListener::bind(socket).unwrap()
    };
    let incoming = stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    runtime.spawn(async move { server.serve_with_incoming(incoming).await });
}

/// A kubelet's directory, with what is in it.
fn kubelet_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["device-plugins", "pod-resources"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    dir
}

fn plugins(dir: &Path) -> PathBuf {
    dir.join("device-plugins")
}

/// What the kubelet calls.
async fn client(dir: &Path, endpoint: &str) -> DevicePluginClient<Channel> {
    DevicePluginClient::new(channel(&plugins(dir).join(endpoint)).await.unwrap())
}

/// A pod in namespace `n` that wants a share.
fn wanting(name: &str, chosen: &str) -> Pod {
    let meta = json!({"name": name, "namespace": "n", "annotations": {"berth.dev/gpus-chosen": chosen}});
    let spec = json!({"containers": [{"name": "main", "resources": {"limits": {"berth.dev/gpu": "1"}}}]});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
}

/// Which share the kubelet is advised to take.
async fn preferred(client: &mut DevicePluginClient<Channel>, available: &[&str]) -> Vec<String> {
    let wanted = ContainerPreferredAllocationRequest {
        available_device_i_ds: available.iter().map(|share| (*share).to_owned()).collect(),
        must_include_device_i_ds: Vec::new(),
        allocation_size: 1,
    };
    let request = PreferredAllocationRequest { container_requests: vec![wanted] };
    let preferred = client.get_preferred_allocation(request).await.unwrap().into_inner();
    preferred.container_responses[0].device_i_ds.clone()
}

fn gpu(name: &str, is_lost: bool) -> Gpu {
    Gpu { uuid: GpuUuid(name.to_owned()), is_lost }
}

fn plugin(dir: &Path, gpus: &Arc<Mutex<Vec<Gpu>>>, choices: &Choices) -> Plugin {
    let gpus = Arc::clone(gpus);
    Plugin::start(Options {
        dir: plugins(dir),
        shares: 2,
        gpus: Box::new(move || Some(gpus.lock().unwrap().clone())),
        choices: choices.clone(),
        ways: Ways { share: Some(Share::new("/l/lib.so".as_ref(), "/s/shim.sock".as_ref())), ..Ways::default() },
        cdi_dir: None,
    })
    .unwrap()
}

fn ill(devices: &ListAndWatchResponse) -> Vec<&str> {
    devices.devices.iter().filter(|device| device.health != "Healthy").map(|device| device.id.as_str()).collect()
}

#[tokio::test]
async fn shares_are_offered_and_a_lost_gpu_is_told() {
    let dir = kubelet_dir();
    let kubelet = Kubelet::start(dir.path());
    let gpus = Arc::new(Mutex::new(vec![gpu("GPU-a", false), gpu("GPU-b", false)]));
    let plugin = plugin(dir.path(), &gpus, &Choices::default());
    let told = kubelet.plugin();
    assert_eq!((told.version.as_str(), told.resource_name.as_str()), ("v1beta1", "berth.dev/gpu"));
    assert!(told.options.unwrap().get_preferred_allocation_available);
    let mut client = client(dir.path(), &told.endpoint).await;
    let mut devices = client.list_and_watch(Empty {}).await.unwrap().into_inner();
    let first = loop {
        let told = devices.message().await.unwrap().unwrap();
        if !told.devices.is_empty() {
            break told;
        }
    };
    assert_eq!((first.devices.len(), ill(&first)), (4, vec![]));
    gpus.lock().unwrap()[1].is_lost = true;
    let next = devices.message().await.unwrap().unwrap();
    assert_eq!(ill(&next), ["GPU-b::0", "GPU-b::1"]);
    drop(plugin);
}

#[tokio::test]
async fn a_pod_gets_the_gpu_that_the_placer_chose_and_sees_no_other() {
    let dir = kubelet_dir();
    let kubelet = Kubelet::start(dir.path());
    let gpus = Arc::new(Mutex::new(vec![gpu("GPU-a", false), gpu("GPU-b", false)]));
    let choices = Choices::default();
    choices.told("uid", &wanting("one", "GPU-b"));
    kubelet.given.0.lock().unwrap().pods.push(listed("one", &[]));
    let _plugin = plugin(dir.path(), &gpus, &choices);
    let mut client = client(dir.path(), &kubelet.plugin().endpoint).await;
    let ids = preferred(&mut client, &["GPU-a::0", "GPU-a::1", "GPU-b::0"]).await;
    assert_eq!(ids, ["GPU-b::0"]);
    let request = AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_i_ds: ids }] };
    let given = client.allocate(request).await.unwrap().into_inner();
    assert_eq!(given.container_responses[0].envs["NVIDIA_VISIBLE_DEVICES"], "GPU-b");
    assert!(!given.container_responses[0].envs.contains_key("LD_PRELOAD"), "it did not ask for it");
}

#[tokio::test]
async fn a_pod_that_asks_for_it_takes_part_at_the_level_of_kernels() {
    let dir = kubelet_dir();
    let kubelet = Kubelet::start(dir.path());
    let choices = Choices::default();
    let mut asks = wanting("one", "GPU-b");
    let ours = [("berth.dev/kernel-level".to_owned(), "true".to_owned())];
    asks.metadata.annotations.get_or_insert_default().extend(ours);
    choices.told("uid", &asks);
    choices.told("other", &wanting("other", "GPU-b"));
    kubelet.given.0.lock().unwrap().pods.push(listed("one", &[]));
    let _plugin = plugin(dir.path(), &Arc::new(Mutex::new(vec![gpu("GPU-b", false)])), &choices);
    let mut client = client(dir.path(), &kubelet.plugin().endpoint).await;
    let ids = preferred(&mut client, &["GPU-b::0", "GPU-b::1"]).await;
    kubelet.given.0.lock().unwrap().pods.push(listed("other", &[]));
    let request = AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_i_ds: ids }] };
    let given = client.allocate(request).await.unwrap().into_inner();
    let envs = &given.container_responses[0].envs;
    assert_eq!(envs["LD_PRELOAD"], "/run/berth/$LIB/libberth_shim.so");
    assert_eq!(envs["BERTH_SHIM_SOCKET"], "/run/berth/shim/shim.sock");
}

#[tokio::test]
async fn of_several_pods_the_one_is_meant_to_which_the_kubelet_has_given_nothing() {
    let dir = kubelet_dir();
    let kubelet = Kubelet::start(dir.path());
    let gpus = Arc::new(Mutex::new(vec![gpu("GPU-a", false), gpu("GPU-b", false)]));
    let choices = Choices::default();
    // As after a restart of ours: one waits for its image, and has its GPU.
    choices.told("1", &wanting("stuck", "GPU-a"));
    choices.told("2", &wanting("new", "GPU-b"));
    kubelet.given.0.lock().unwrap().pods.extend([listed("stuck", &["GPU-a::0"]), listed("new", &[])]);
    let _plugin = plugin(dir.path(), &gpus, &choices);
    let mut client = client(dir.path(), &kubelet.plugin().endpoint).await;
    assert_eq!(preferred(&mut client, &["GPU-a::1", "GPU-b::0"]).await, ["GPU-b::0"]);
}

#[tokio::test]
async fn a_pod_of_which_the_kubelet_knows_first_is_waited_for() {
    let dir = kubelet_dir();
    let kubelet = Kubelet::start(dir.path());
    let gpus = Arc::new(Mutex::new(vec![gpu("GPU-a", false), gpu("GPU-b", false)]));
    let choices = Choices::default();
    // Another is known to us, and not to the kubelet.
    choices.told("1", &wanting("later", "GPU-a"));
    kubelet.given.0.lock().unwrap().pods.push(listed("first", &[]));
    let _plugin = plugin(dir.path(), &gpus, &choices);
    let mut client = client(dir.path(), &kubelet.plugin().endpoint).await;
    let asked = preferred(&mut client, &["GPU-a::0", "GPU-a::1", "GPU-b::0"]);
    let told = async {
        // The plugin is asked before it is told.
        kubelet.given.1.notified().await;
        choices.told("2", &wanting("first", "GPU-b"));
    };
    assert_eq!(futures_util::future::join(asked, told).await.0, ["GPU-b::0"]);
}

#[tokio::test]
async fn a_kubelet_that_restarts_is_told_again_and_one_that_comes_late_is_waited_for() {
    let dir = kubelet_dir();
    let gpus = Arc::new(Mutex::new(vec![gpu("GPU-a", false)]));
    let _plugin = plugin(dir.path(), &gpus, &Choices::default());
    let kubelet = Kubelet::start(dir.path());
    kubelet.plugin();
    drop(kubelet);
    let kubelet = Kubelet::start(dir.path());
    let told = kubelet.plugin();
    client(dir.path(), &told.endpoint).await.get_device_plugin_options(Empty {}).await.unwrap();
}
