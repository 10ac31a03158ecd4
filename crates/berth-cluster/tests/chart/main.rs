//! The Helm chart: it renders, says what the code relies on, and grants no right that is not argued.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dashboard;
mod render;

use std::path::Path;

use berth_cluster::kubernetes::gpunode::{GROUP, KIND, Status, VERSION};
use berth_model::Settings;
use serde_json::{Value, json};

use render::{chart_dir, objects, values, yaml};

const KUBERNETES: &str = "v1.33.1";

fn made(set: &[(&str, Value)]) -> Vec<Value> {
    made_for(KUBERNETES, set)
}

fn made_for(kubernetes: &str, set: &[(&str, Value)]) -> Vec<Value> {
    let mut all = vec![("image", json!("registry.example/berth:1"))];
    all.extend_from_slice(set);
    objects(kubernetes, &all)
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn every_object_has_what_the_api_server_wants_of_one() {
    for object in made(&[]) {
        for field in ["/apiVersion", "/kind", "/metadata/name"] {
            assert!(object.pointer(field).is_some_and(Value::is_string), "{field} of {object}");
        }
    }
    let kinds: Vec<String> = made(&[]).iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect();
    for kind in ["DaemonSet", "Deployment", "Service", "ValidatingWebhookConfiguration", "NetworkPolicy", "ConfigMap"] {
        assert!(kinds.iter().any(|found| found == kind), "no {kind} in {kinds:?}");
    }
}

#[test]
#[should_panic(expected = "which image has the berth binary?")]
fn an_image_must_be_named() {
    objects(KUBERNETES, &[]);
}

/// The path on the node that the daemon has pods' mounts begin at is where the library is put.
#[test]
fn with_kernels_the_library_is_on_the_node_before_the_agent_starts() {
    let without = made(&[]);
    assert!(find(&without, "DaemonSet", "berth-agent").pointer("/spec/template/spec/initContainers").is_none());
    let objects = made(&[("agent.kernels.enabled", json!(true)), ("agent.kernels.policy", json!("slo"))]);
    let text = find(&objects, "ConfigMap", "berth-agent")["data"]["berth.toml"].as_str().unwrap().to_owned();
    let kernels = toml::from_str::<Settings>(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).kernels;
    assert!(kernels.enabled && !kernels.all && kernels.policy.as_str() == "slo", "{text}");
    let pod = &find(&objects, "DaemonSet", "berth-agent")["spec"]["template"]["spec"];
    let init = &pod["initContainers"][0];
    let library = kernels.library.to_str().unwrap();
    assert!(init["args"][0].as_str().unwrap().contains(&format!(" {library}\n")), "{init}");
    // What is below a volume of the node's has the same path in the agent and on the node.
    for path in [&kernels.library, &kernels.socket] {
        let is_above = |mount: &&Value| path.starts_with(mount["mountPath"].as_str().unwrap());
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(is_above).unwrap_or_else(|| panic!("{} is not on the node", path.display()));
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        assert_eq!(volume["hostPath"]["path"], mount["mountPath"]);
    }
    let image = std::fs::read_to_string(chart_dir().join("../../image/Dockerfile")).unwrap();
    assert!(image.contains("/usr/lib/berth/libberth_shim.so"), "the image does not have it");
}

#[test]
fn the_settings_it_writes_are_read_by_berth() {
    let objects = made(&[]);
    for name in ["berth-agent", "berth-placer"] {
        let text = find(&objects, "ConfigMap", name)["data"]["berth.toml"].as_str().unwrap().to_owned();
        let settings: Settings = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        assert!(settings.kubernetes.enabled || settings.placer.address().is_some(), "{text}");
    }
}

#[test]
fn the_definition_of_gpunodes_has_every_field_that_is_written() {
    let crd = yaml(&std::fs::read_to_string(chart_dir().join("crds/gpunodes.yaml")).unwrap());
    let (spec, version) = (&crd["spec"], &crd["spec"]["versions"][0]);
    assert_eq!((spec["group"].as_str(), spec["names"]["kind"].as_str()), (Some(GROUP), Some(KIND)));
    assert_eq!((version["name"].as_str(), spec["scope"].as_str()), (Some(VERSION), Some("Cluster")));
    let properties = &version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
    let status = Status { pasts: Some(String::new()), reported_at: Some(String::new()), ..Status::default() };
    let written = serde_json::to_value(status).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&written), names(properties));
    for column in version["additionalPrinterColumns"].as_array().unwrap() {
        let field = column["jsonPath"].as_str().unwrap().strip_prefix(".status.").unwrap();
        assert!(properties.get(field).is_some(), "{field}");
    }
}

/// Least right: who may do anything to everything is nobody, and nobody may read secrets.
#[test]
fn no_right_is_granted_by_a_star_and_none_to_secrets() {
    let objects = made(&[]);
    let roles: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "ClusterRole").collect();
    assert_eq!(roles.len(), 2);
    for rule in roles.iter().flat_map(|role| role["rules"].as_array().unwrap()) {
        let text = rule.to_string();
        for refused in ["\"*\"", "secrets", "delete", "\"update\"", "impersonate", "escalate"] {
            assert!(!text.contains(refused), "{refused} in {text}");
        }
    }
}

#[test]
fn every_rule_is_argued_by_a_comment() {
    for file in ["agent-rbac.yaml", "placer-rbac.yaml"] {
        let text = std::fs::read_to_string(chart_dir().join("templates").join(file)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let rules = lines.windows(2).filter(|pair| pair[1].trim_start().starts_with("- apiGroups:"));
        for pair in rules {
            assert!(pair[0].trim_start().starts_with('#'), "{file}: no reason before `{}`", pair[1]);
        }
    }
}

#[test]
fn who_does_not_let_the_placer_bind_does_not_give_it_the_right_to() {
    let may_bind =
        |objects: &[Value]| find(objects, "ClusterRole", "berth-placer").to_string().contains("pods/binding");
    let verb = |objects: &[Value]| {
        let example = find(objects, "ConfigMap", "berth-scheduler-example")["data"]["extender.yaml"].as_str().unwrap();
        yaml(example)["extenders"][0]["bindVerb"].as_str().map(ToOwned::to_owned)
    };
    let (with, without) = (made(&[]), made(&[("scheduler.bind", json!(false))]));
    assert_eq!((may_bind(&with), verb(&with)), (true, Some("bind".to_owned())));
    assert_eq!((may_bind(&without), verb(&without)), (false, None));
}

#[test]
#[should_panic(expected = "scheduler.bind and scheduler.ignorable cannot both be true")]
fn a_scheduler_that_passes_over_refusals_to_bind_is_refused() {
    made(&[("scheduler.ignorable", json!(true))]);
}

fn example(objects: &[Value]) -> Value {
    let example = &find(objects, "ConfigMap", "berth-scheduler-example")["data"]["extender.yaml"];
    yaml(example.as_str().unwrap())
}

#[test]
fn without_the_placer_all_but_pods_with_a_gpu_go_on_and_those_too_where_it_is_said() {
    let objects = made(&[]);
    for webhook in find(&objects, "ValidatingWebhookConfiguration", "berth-placer")["webhooks"].as_array().unwrap() {
        assert_eq!(webhook["failurePolicy"], "Ignore");
    }
    assert_eq!(example(&objects)["percentageOfNodesToScore"], 100);
    let extender = &example(&objects)["extenders"][0];
    assert_eq!(
        (&extender["ignorable"], &extender["managedResources"][0]["name"]),
        (&json!(false), &json!("berth.dev/gpu"))
    );
    let lax = made(&[("scheduler.bind", json!(false)), ("scheduler.ignorable", json!(true))]);
    assert_eq!(example(&lax)["extenders"][0]["ignorable"], true);
}

#[test]
fn a_scheduler_that_crashes_where_it_cannot_evict_anybody_is_told_not_to_try() {
    for (kubernetes, is_told) in [("v1.20.2", true), ("v1.21.0", false)] {
        let profile = &example(&made_for(kubernetes, &[]))["profiles"][0];
        let disabled = &profile["plugins"]["postFilter"]["disabled"][0]["name"];
        assert_eq!(disabled == "DefaultPreemption", is_told, "{kubernetes}");
    }
}

#[test]
fn the_cluster_s_own_parts_and_the_placer_s_are_made_whatever_the_webhook_says() {
    for (kubernetes, has_conditions) in [("v1.20.2", false), ("v1.28.0", true)] {
        let objects = made_for(kubernetes, &[("webhook.failurePolicy", json!("Fail"))]);
        let webhooks = &find(&objects, "ValidatingWebhookConfiguration", "berth-placer")["webhooks"];
        let webhooks = webhooks.as_array().unwrap();
        assert_eq!(webhooks.len(), 3);
        for webhook in webhooks {
            let selector = &webhook["namespaceSelector"]["matchExpressions"][0];
            assert_eq!(
                (selector["operator"].as_str(), &selector["values"]),
                (Some("NotIn"), &json!(["kube-system", "berth-system"]))
            );
            let condition = webhook["matchConditions"][0]["expression"].as_str();
            assert_eq!(
                condition.is_some_and(|text| text.contains(".exists(name, name.startsWith('berth.dev/'))")),
                has_conditions
            );
            for containers in [".spec.containers.exists(one,", ".spec.initContainers.exists(one,"] {
                assert_eq!(condition.is_some_and(|text| text.contains(containers)), has_conditions, "{containers}");
            }
        }
    }
}

#[test]
fn only_the_placer_writes_which_gpus_were_chosen_and_who_asks_it_is_known_where_that_is_said() {
    let settings = |objects: &[Value]| {
        let text = find(objects, "ConfigMap", "berth-placer")["data"]["berth.toml"].as_str().unwrap().to_owned();
        toml::from_str::<Settings>(&text).unwrap().placer
    };
    let objects = made(&[]);
    let account =
        find(&objects, "Deployment", "berth-placer")["spec"]["template"]["spec"]["serviceAccountName"].clone();
    let placer = settings(&objects);
    assert_eq!(placer.user, format!("system:serviceaccount:berth-system:{}", account.as_str().unwrap()));
    assert!(
        placer.client_ca.as_os_str().is_empty() && example(&objects)["extenders"][0]["tlsConfig"]["certFile"].is_null()
    );
    let objects = made(&[("tls.clientCaSecret", json!("scheduler-ca"))]);
    let path = settings(&objects).client_ca;
    let pod = &find(&objects, "Deployment", "berth-placer")["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().any(|mount| path.parent() == mount["mountPath"].as_str().map(Path::new)), "{path:?}");
    assert!(example(&objects)["extenders"][0]["tlsConfig"]["certFile"].is_string());
}

#[test]
fn other_settings_make_other_pods() {
    let digest = |set: &[(&str, Value)], kind: &str, name: &str| {
        find(&made(set), kind, name)["spec"]["template"]["metadata"]["annotations"]["checksum/config"].clone()
    };
    for (kind, name, value) in [
        ("Deployment", "berth-placer", ("placer.order", json!("pack"))),
        ("DaemonSet", "berth-agent", ("agent.policy", json!("off"))),
    ] {
        let (before, after) = (digest(&[], kind, name), digest(&[value], kind, name));
        assert!(before.is_string() && before != after, "{kind}");
    }
}

fn agent(objects: &[Value]) -> (Value, Value) {
    let template = find(objects, "DaemonSet", "berth-agent")["spec"]["template"].clone();
    let container = template["spec"]["containers"][0].clone();
    (template, container)
}

/// It looks at processes of other containers, moves their cgroups, and goes first: each takes a right.
#[test]
fn an_agent_has_the_rights_that_holding_pods_takes() {
    for (kubernetes, has_field) in [("v1.20.2", false), ("v1.30.0", true)] {
        let (template, container) = agent(&made_for(kubernetes, &[]));
        let context = &container["securityContext"];
        for right in ["SYS_ADMIN", "SYS_PTRACE", "SYS_NICE", "SYS_RESOURCE", "KILL"] {
            assert!(context["capabilities"]["add"].as_array().unwrap().contains(&json!(right)), "{right}");
        }
        assert_eq!((&template["spec"]["hostPID"], &context["seLinuxOptions"]["type"]), (&json!(true), &json!("spc_t")));
        let annotation = "container.apparmor.security.beta.kubernetes.io/berth";
        assert_eq!(template["metadata"]["annotations"][annotation], "unconfined");
        assert_eq!(
            context["appArmorProfile"]["type"] == "Unconfined",
            has_field,
            "{kubernetes} would refuse the field"
        );
    }
}

#[test]
fn an_agent_that_hangs_is_started_anew() {
    let (_, container) = agent(&made(&[]));
    let command = json!(["/usr/bin/berth", "--config=/etc/berth/berth.toml", "doctor", "--alive"]);
    for probe in ["startupProbe", "livenessProbe"] {
        assert_eq!(container[probe]["exec"]["command"], command);
        // The command gives up after 5 s by itself.
        assert!(container[probe]["timeoutSeconds"].as_u64().unwrap() > 5, "{probe}");
    }
}

/// A node that was just added, for which nobody has made a key yet.
#[test]
fn a_node_whose_key_is_not_there_gets_an_agent_all_the_same() {
    for (set, key) in [
        (vec![], "/etc/berth/keys/$(NODE_NAME)"),
        (vec![("keys.nodeHostPath", json!("/etc/berth"))], "/etc/berth/keys/node.key"),
    ] {
        let (template, container) = agent(&made(&set));
        let argument = json!(format!("--set=cluster.key_file={key}"));
        assert!(container["args"].as_array().unwrap().contains(&argument), "{argument}");
        let mount = container["volumeMounts"].as_array().unwrap().iter().find(|mount| mount["name"] == "keys").unwrap();
        assert!(mount["subPath"].is_null() && mount["subPathExpr"].is_null(), "a missing file would stop the pod");
        let volumes = template["spec"]["volumes"].as_array().unwrap();
        let keys = volumes.iter().find(|volume| volume["name"] == "keys").unwrap();
        assert!(keys["secret"]["optional"] == true || keys["hostPath"]["type"] == "DirectoryOrCreate", "{keys}");
    }
}

#[test]
fn metrics_of_agents_are_found_by_scrapers_unless_that_is_switched_off() {
    let (template, container) = agent(&made(&[]));
    assert_eq!(template["metadata"]["annotations"]["prometheus.io/port"], "7279");
    assert_eq!(container["ports"][0]["containerPort"], 7279);
    assert!(container["args"].as_array().unwrap().contains(&json!("--set=api.metrics_listen=0.0.0.0:7279")));
    let (template, container) = agent(&made(&[("agent.metricsPort", json!(0))]));
    assert!(!container["args"].to_string().contains("metrics") && container["ports"].is_null());
    assert!(template["metadata"]["annotations"]["prometheus.io/scrape"].is_null());
}

#[test]
fn every_value_is_used_and_documented() {
    let templates: String = std::fs::read_dir(chart_dir().join("templates"))
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let mut names = Vec::new();
    for (name, value) in values().as_object().unwrap() {
        match value.as_object().filter(|fields| !fields.is_empty()) {
            Some(fields) => names.extend(fields.keys().map(|field| format!("{name}.{field}"))),
            None => names.push(name.clone()),
        }
    }
    let unused: Vec<_> = names.iter().filter(|name| !templates.contains(&format!(".Values.{name}"))).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn everything_that_can_be_switched_renders_both_ways() {
    let objects = made(&[
        ("webhook.enabled", json!(false)),
        ("networkPolicy.enabled", json!(false)),
        ("keys.nodeHostPath", json!("/etc/berth")),
        ("agent.runtimeClassName", json!("nvidia")),
        ("agent.nodeSelector", json!({"gpu": "yes"})),
        ("agent.cdiDir", json!("/var/run/cdi")),
        ("agent.mounts", json!(["/opt/driver", "/opt/more"])),
        ("imagePullSecrets", json!(["registry"])),
    ]);
    let kinds: Vec<&str> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
    assert!(!kinds.contains(&"NetworkPolicy") && !kinds.contains(&"ValidatingWebhookConfiguration"), "{kinds:?}");
    let agent = &find(&objects, "DaemonSet", "berth-agent")["spec"]["template"]["spec"];
    assert_eq!((&agent["runtimeClassName"], &agent["nodeSelector"]["gpu"]), (&json!("nvidia"), &json!("yes")));
    assert!(agent["volumes"].to_string().contains("/var/run/cdi"));
    assert!(
        agent["volumes"].to_string().contains("/var/lib/kubelet/pod-resources"),
        "the kubelet is asked what it gave"
    );
    assert_eq!(agent["imagePullSecrets"], json!([{"name": "registry"}]));
    let config = find(&objects, "ConfigMap", "berth-agent")["data"]["berth.toml"].as_str().unwrap();
    assert_eq!(toml::from_str::<Settings>(config).unwrap().kubernetes.mounts.len(), 2);
    let objects = made(&[
        ("networkPolicy.controlPlane", json!(["10.0.0.0/24"])),
        ("networkPolicy.apiServer", json!(["10.0.0.1/32"])),
        ("networkPolicy.metricsFrom", json!({"name": "monitoring"})),
        ("tls.caBundle", json!("QQ==")),
        ("tls.certManager", json!("berth-system/berth")),
    ]);
    let policy = &find(&objects, "NetworkPolicy", "berth-placer")["spec"];
    assert_eq!(policy["ingress"][0]["from"][0]["ipBlock"]["cidr"], "10.0.0.0/24");
    assert_eq!(policy["ingress"][0]["from"][1]["namespaceSelector"]["matchLabels"]["name"], "monitoring");
}
