//! The API server's question and its answer (`admission.k8s.io/v1`, and `v1beta1`, which has the same fields).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::judge::{Case, Judgement, judge};
use crate::kubernetes::pod::Pod;

/// HTTP's code for what is understood and cannot be done, as the API server uses it for objects that are not valid.
const UNPROCESSABLE: u16 = 422;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionReview {
    api_version: String,
    request: Request,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    kind: Kind,
    #[serde(default)]
    user_info: UserInfo,
    /// `None` where it is deleted.
    #[serde(default)]
    object: Option<Box<RawValue>>,
    /// `None` where it is made.
    #[serde(default)]
    old_object: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    kind: String,
}

/// Who makes or changes it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub api_version: String,
    pub kind: &'static str,
    pub response: Response,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Response {
    pub uid: String,
    pub allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    pub message: String,
    pub reason: &'static str,
    pub code: u16,
}

#[derive(Debug, thiserror::Error)]
#[error("reading the {kind} under review")]
pub struct Unreadable {
    kind: String,
    source: serde_json::Error,
}

/// What has a template of pods: Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job.
#[derive(Deserialize)]
struct Owner {
    spec: OwnerSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OwnerSpec {
    template: Pod,
}

#[derive(Deserialize)]
struct CronJob {
    spec: CronJobSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CronJobSpec {
    job_template: Owner,
}

/// `placer`: by which name the API server knows it; empty if nobody has said so.
pub fn review(review: AdmissionReview, placer: &str) -> Result<Answer, Unreadable> {
    let AdmissionReview { api_version, request } = review;
    let kind = request.kind.kind;
    let is_by_placer = (!placer.is_empty()).then(|| request.user_info.username == placer);
    let object = request.object.map(|object| pod(&kind, &object)).transpose()?;
    let old = request.old_object.map(|object| pod(&kind, &object)).transpose()?;
    let Judgement { problems, warnings } = match &object {
        Some(pod) => judge(Case { pod, old: old.as_ref(), is_pod: kind == "Pod", is_by_placer }),
        None => Judgement::default(),
    };
    let status = (!problems.is_empty()).then(|| Status {
        message: format!("berth cannot read what it asks for: {}", problems.join("; ")),
        reason: "Invalid",
        code: UNPROCESSABLE,
    });
    let response = Response { uid: request.uid, allowed: status.is_none(), status, warnings };
    Ok(Answer { api_version, kind: "AdmissionReview", response })
}

/// The pod that it is, or that it would make.
fn pod(kind: &str, object: &RawValue) -> Result<Pod, Unreadable> {
    let text = object.get();
    let pod = match kind {
        "Pod" => serde_json::from_str(text),
        "CronJob" => serde_json::from_str::<CronJob>(text).map(|cron| cron.spec.job_template.spec.template),
        _ => serde_json::from_str::<Owner>(text).map(|owner| owner.spec.template),
    };
    pod.map_err(|source| Unreadable { kind: kind.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn answer(kind: &str, object: Value, old: Value) -> Answer {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "u-1", "kind": {"group": "", "version": "v1", "kind": kind}, "object": object, "oldObject": old},
        });
        super::review(serde_json::from_value(review).unwrap(), "").unwrap()
    }

    fn annotated(value: &str) -> Value {
        json!({"metadata": {"annotations": {"berth.dev/deadline": value}},
               "spec": {"containers": [{"image": "x", "resources": {"requests": {"berth.dev/gpu": "1"}}}]}})
    }

    #[test]
    fn a_slip_of_the_pen_is_refused_with_what_would_be_right() {
        let Answer { kind, api_version, response } = answer("Pod", annotated("9sex"), Value::Null);
        assert_eq!((kind, api_version.as_str()), ("AdmissionReview", "admission.k8s.io/v1"));
        let status = response.status.unwrap();
        assert!(!response.allowed);
        assert_eq!((response.uid.as_str(), status.code), ("u-1", 422));
        assert_eq!(
            status.message,
            "berth cannot read what it asks for: berth.dev/deadline: `9sex` is not a deadline: write seconds, \
             or a number with a unit, such as `9`, `1500ms`, `9s` or `2m`"
        );
    }

    /// As kube-apiserver 1.20.2 sent them.
    #[test]
    fn recorded_reviews_are_answered_by_their_own_uid() {
        for text in [
            include_str!("../../../tests/kubernetes/recorded/review-create.json"),
            include_str!("../../../tests/kubernetes/recorded/review-update.json"),
            include_str!("../../../tests/kubernetes/recorded/review-create-generated-dry-run.json"),
        ] {
            let asked: Value = serde_json::from_str(text).unwrap();
            let answered = super::review(serde_json::from_str(text).unwrap(), "placer").unwrap();
            assert_eq!(answered.response.uid, asked["request"]["uid"]);
            assert_eq!((answered.response.allowed, answered.response.warnings.len()), (true, 0));
            let wrong = text.replace("\"20GiB\"", "\"20 gigs\"");
            let refused = super::review(serde_json::from_str(&wrong).unwrap(), "").unwrap().response;
            assert!(!refused.allowed);
        }
    }

    #[test]
    fn the_placer_is_known_by_the_name_the_api_server_gives() {
        let text = include_str!("../../../tests/kubernetes/recorded/review-update.json");
        let mut asked: Value = serde_json::from_str(text).unwrap();
        asked["request"]["object"]["metadata"]["annotations"]["berth.dev/gpus-chosen"] = json!("GPU-a");
        let user = asked["request"]["userInfo"]["username"].as_str().unwrap().to_owned();
        let is_allowed = |placer: &str| {
            super::review(serde_json::from_value(asked.clone()).unwrap(), placer).unwrap().response.allowed
        };
        assert!(is_allowed(&user));
        assert!(!is_allowed("system:serviceaccount:berth-system:berth-placer"));
    }

    #[test]
    fn templates_are_judged_like_the_pods_they_make() {
        let template = |pod: Value| json!({"spec": {"template": pod}});
        for (kind, wrap) in [
            ("Deployment", template as fn(Value) -> Value),
            ("Job", template),
            ("CronJob", |pod| json!({"spec": {"jobTemplate": {"spec": {"template": pod}}}})),
        ] {
            assert!(!answer(kind, wrap(annotated("abc")), Value::Null).response.allowed, "{kind}");
            assert!(answer(kind, wrap(annotated("9s")), Value::Null).response.allowed, "{kind}");
        }
    }

    #[test]
    fn what_has_nothing_of_berth_or_is_deleted_is_let_through_without_a_word() {
        for object in [Value::Null, json!({}), json!({"metadata": {"annotations": {"a": "b"}}})] {
            let response = answer("Pod", object, annotated("abc")).response;
            assert_eq!(response, Response { uid: "u-1".into(), allowed: true, status: None, warnings: vec![] });
        }
    }

    #[test]
    fn a_million_labels_are_read_over() {
        let labels: serde_json::Map<String, Value> = (0..1_000_000).map(|n| (format!("l{n}"), json!("x"))).collect();
        let mut object = annotated("0");
        object["metadata"]["labels"] = labels.into();
        let response = answer("Pod", object, Value::Null).response;
        assert!(response.status.unwrap().message.len() < 300);
    }
}
