//! Services that were placed: how they stand, and what is changed about one that goes elsewhere.
//!
//! Pure. A service is kept as the engine tells of it ([`Value`]): what is not about its place goes back as it came.

use std::collections::BTreeMap;

use berth_model::cluster::api::{PlaceRequest, Waiting};
use berth_model::cluster::{Choice, PLACEMENT_LABEL, PlacementId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::labels::{self, BY_PLACER, PENDING, REPLICAS, START, VARIABLES};
use crate::placer::Placed;

const NODE_CONSTRAINT: &str = "node.id";
/// What the manager writes on a task that it ends since its node does not meet the service's constraints any more.
const BY_CONSTRAINTS: &str = "task rejected by constraint enforcer";
/// What no node is called: the constraint of a service that waits for a place. Without it the engine would start it on its old node as
/// soon as that is back, whatever goes on there.
const NOWHERE: &str = "node.id==berth.pending";

/// A service that berth has placed.
#[derive(Debug, Clone)]
pub struct Service {
    pub id: String,
    pub name: String,
    /// With the user's own constraints, and without berth's.
    pub request: PlaceRequest,
    pub choice: Choice,
    pub placement: PlacementId,
    pub stage: Stage,
    told: Value,
}

/// How far the container of a service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Whoever asked for its place has made it; the placer has not started it yet.
    Made,
    /// It has not been started, or not again.
    Waiting,
    Running,
    /// The swarm has ended it, since its node did not meet its constraints any more, and starts it nowhere else.
    Displaced,
    /// It has ended, and will not be started again; or is not wanted any more.
    Over,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Task {
    #[serde(rename = "ServiceID")]
    service_id: String,
    #[serde(default)]
    created_at: String,
    #[serde(default)]
    status: TaskStatus,
    #[serde(default)]
    desired_state: String,
    #[serde(default)]
    spec: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TaskStatus {
    state: String,
    message: String,
}

impl Service {
    /// `None` if it was not placed by berth, cannot be read as such, or somebody has taken berth's constraint off it.
    pub fn read(told: Value, tasks: &[Task]) -> Option<Self> {
        let spec = &told["Spec"];
        let labels: BTreeMap<String, String> = serde_json::from_value(spec["Labels"].clone()).ok()?;
        let (placement, mut request, choice) = labels::read(&labels)?;
        let template = &spec["TaskTemplate"];
        request.image = template["ContainerSpec"]["Image"].as_str().map(str::to_owned);
        request.constraints = strings(&template["Placement"]["Constraints"]);
        // One of them: the user may have named the same node.
        let stands_at = |wanted: &str| request.constraints.iter().position(|text| text == wanted);
        let own = stands_at(NOWHERE).or_else(|| stands_at(&constraint(&choice)))?;
        request.constraints.remove(own);
        let id = told["ID"].as_str()?.to_owned();
        let name = spec["Name"].as_str().unwrap_or(&id).to_owned();
        // What was made for its last place says nothing of this one.
        let is_its = |task: &&Task| task.service_id == id && task.placement().is_none_or(|its| its == placement);
        let stage = stage(&told, tasks.iter().filter(is_its));
        Some(Self { id, name, request, choice, placement, stage, told })
    }

    /// For the book, while it has a place and is not over.
    pub fn placed(&self) -> Option<Placed> {
        let has_place = matches!(self.stage, Stage::Waiting | Stage::Running) && self.pending().is_none();
        has_place.then(|| Placed {
            id: self.placement,
            request: self.request.clone(),
            choice: self.choice.clone(),
            is_started: self.stage == Stage::Running,
        })
    }

    /// By which the engine tells whether somebody else has changed it.
    pub fn version(&self) -> u64 {
        self.told["Version"]["Index"].as_u64().unwrap_or_default()
    }

    /// Why nobody takes it, as it is written on it.
    pub fn pending(&self) -> Option<&str> {
        self.told["Spec"]["Labels"][PENDING].as_str()
    }

    /// For whoever asks why it does not run. One that has a place and waits for its node is the engine's to tell of.
    pub fn waiting(&self) -> Option<Waiting> {
        let made = (self.stage == Stage::Made).then_some("no placer has started it yet");
        let why = self.pending().filter(|_| self.stage != Stage::Over).or(made)?;
        let since = self.told["UpdatedAt"].as_str().and_then(|text| text.parse().ok());
        Some(Waiting { name: self.name.clone(), since, why: why.to_owned() })
    }

    /// Its specification for a place, its own or another. One that was only made is started by it, as often as it was before.
    pub fn moved(&self, id: PlacementId, choice: &Choice) -> Value {
        let mut spec = self.told["Spec"].clone();
        let labels = object(&mut spec["Labels"]);
        labels.remove(PENDING);
        labels.remove(START);
        let before = labels.remove(REPLICAS).and_then(|count| count.as_str()?.parse::<u64>().ok());
        labels.extend(labels::of_service(&self.request, id, choice).into_iter().map(|(k, v)| (k.to_owned(), json!(v))));
        self.constrain(&mut spec, &constraint(choice));
        let container = object(&mut spec["TaskTemplate"]["ContainerSpec"]);
        let is_ours = |variable: &String| VARIABLES.iter().any(|name| variable.starts_with(&format!("{name}=")));
        let mut env = strings(container.get("Env").unwrap_or(&Value::Null));
        env.retain(|variable| !is_ours(variable));
        env.extend(VARIABLES.map(|name| format!("{name}={}", labels::gpus(choice))));
        container.insert("Env".to_owned(), json!(env));
        let labels = object(container.entry("Labels").or_insert(Value::Null));
        labels.insert(PLACEMENT_LABEL.to_owned(), json!(id.to_string()));
        if self.stage == Stage::Made {
            spec["Mode"]["Replicated"]["Replicas"] = json!(before.unwrap_or(1));
        }
        spec
    }

    /// Its specification if somebody has started it who is not the placer: when that ends it, it is not to be started again.
    pub fn unmarked(&self) -> Option<Value> {
        let mut spec = self.told["Spec"].clone();
        let labels = object(&mut spec["Labels"]);
        labels.remove(START)?;
        labels.remove(REPLICAS);
        Some(spec)
    }

    /// Its specification without a container, until the placer starts it somewhere.
    pub fn withdrawn(&self) -> Value {
        let mut spec = self.told["Spec"].clone();
        let replicas = spec["Mode"]["Replicated"]["Replicas"].as_u64().unwrap_or(1);
        let labels = object(&mut spec["Labels"]);
        labels.insert(START.to_owned(), json!(BY_PLACER));
        labels.insert(REPLICAS.to_owned(), json!(replicas.to_string()));
        spec["Mode"]["Replicated"]["Replicas"] = json!(0);
        spec
    }

    /// Its specification with why it has no place, and nowhere to go.
    pub fn told_why(&self, why: &str) -> Value {
        let mut spec = self.told["Spec"].clone();
        object(&mut spec["Labels"]).insert(PENDING.to_owned(), json!(why));
        self.constrain(&mut spec, NOWHERE);
        spec
    }

    /// The user's constraints, and this one.
    fn constrain(&self, spec: &mut Value, place: &str) {
        let constraints: Vec<&str> = self.request.constraints.iter().map(String::as_str).chain([place]).collect();
        object(&mut spec["TaskTemplate"]["Placement"]).insert("Constraints".to_owned(), json!(constraints));
    }
}

/// The engine's own way to say where.
pub fn constraint(choice: &Choice) -> String {
    format!("{NODE_CONSTRAINT}=={}", choice.node)
}

/// Of several tasks the youngest counts: the others were before it.
fn stage<'a>(told: &Value, tasks: impl Iterator<Item = &'a Task>) -> Stage {
    let template = &told["Spec"]["TaskTemplate"];
    let is_wanted = told["Spec"]["Mode"]["Replicated"]["Replicas"].as_u64() != Some(0);
    if !is_wanted && told["Spec"]["Labels"][START].is_string() {
        return Stage::Made;
    }
    let Some(task) = tasks.max_by_key(|task| task.created()).filter(|_| is_wanted) else {
        return if is_wanted { Stage::Waiting } else { Stage::Over };
    };
    let restarts = template["RestartPolicy"]["Condition"].as_str().unwrap_or("any");
    // The manager gives a task up and makes the next one in one step: if none is younger, none will be.
    let is_last = task.desired_state == "shutdown";
    match (task.status.state.as_str(), restarts) {
        ("running", _) if !is_last => Stage::Running,
        ("rejected", _) if is_last && task.status.message == BY_CONSTRAINTS => Stage::Displaced,
        ("complete" | "failed" | "rejected", _) if is_last => Stage::Over,
        ("complete", "none" | "on-failure") | ("failed", "none") => Stage::Over,
        _ => Stage::Waiting,
    }
}

impl Task {
    fn created(&self) -> Option<jiff::Timestamp> {
        self.created_at.parse().ok()
    }

    /// For which place it was made.
    fn placement(&self) -> Option<PlacementId> {
        self.spec["ContainerSpec"]["Labels"][PLACEMENT_LABEL].as_str()?.parse().ok()
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// What is missing becomes an empty one.
fn object(value: &mut Value) -> &mut serde_json::Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it is an object by now")
}

#[cfg(test)]
mod tests;
