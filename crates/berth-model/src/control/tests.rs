//! How people name tenants, and who may act on whom.

use super::*;
use crate::id::{ContainerId, Runtime};
use crate::testing::row;

fn container(id: &str, name: &str) -> TaskRow {
    row(TenantKey::Container { runtime: Runtime::Docker, id: ContainerId(id.into()) }, name)
}

fn cgroup(path: &str) -> TaskRow {
    row(TenantKey::Cgroup { path: path.into() }, path)
}

fn host() -> Vec<TaskRow> {
    vec![
        container("ab12cd", "trainer"),
        container("ab34ef", "ab"),
        cgroup("/team-a/job"),
        cgroup("/team-b/job"),
        row(TenantKey::User { uid: 1000 }, "ada"),
    ]
}

fn found(selector: &str) -> Result<String, Refusal> {
    find(selector, &host()).map(ToString::to_string)
}

#[test]
fn a_tenant_is_found_by_whatever_people_call_it() {
    for (selector, expected) in [
        ("trainer", "docker:ab12cd"),
        ("ab12", "docker:ab12cd"),
        ("docker:ab34ef", "docker:ab34ef"),
        ("/team-a/job", "cgroup:/team-a/job"),
        ("team-b/job", "cgroup:/team-b/job"),
        ("cgroup:/team-b/job", "cgroup:/team-b/job"),
        ("ada", "user:1000"),
        ("1000", "user:1000"),
    ] {
        assert_eq!(found(selector).as_deref(), Ok(expected), "{selector}");
    }
}

#[test]
fn who_is_called_exactly_so_comes_before_who_could_be_meant() {
    assert_eq!(found("ab").as_deref(), Ok("docker:ab34ef"), "`ab` begins two ids and is one name");
}

#[test]
fn several_are_told_with_what_tells_them_apart() {
    let error = found("job").unwrap_err();
    assert_eq!(error.code(), "ambiguous_tenant");
    let told = error.to_string();
    assert!(told.contains("cgroup:/team-a/job") && told.contains("cgroup:/team-b/job"), "{told}");
}

#[test]
fn nobody_is_told_with_who_is_there_and_nothing_is_no_name() {
    let told = found("trianer").unwrap_err();
    assert_eq!(told.to_string(), "no tenant is called `trianer`; there are trainer, ab, /team-a/job, /team-b/job, ada");
    assert_eq!(found("").unwrap_err().code(), "no_such_tenant");
    assert_eq!(find("x", &[]).unwrap_err().to_string(), "no tenant is called `x`");
}

/// A part of a path is not a part of a name: `b` is not `job`.
#[test]
fn the_end_of_a_path_is_whole_names() {
    for selector in ["ob", "b", "a/job", "/job/"] {
        assert_eq!(found(selector).unwrap_err().code(), "no_such_tenant", "{selector}");
    }
}

#[test]
fn a_tenant_on_two_gpus_is_one() {
    let rows = [container("ab12cd", "trainer"), container("ab12cd", "trainer")];
    assert!(find("trainer", &rows).is_ok());
}

#[test]
fn owners_may_act_on_their_own_and_admins_on_everybody() {
    let ada = Caller { uid: 1000, user: Some("ada".into()), is_admin: false };
    let root = Caller { uid: 0, user: Some("root".into()), is_admin: true };
    assert!(ada.may_act_on(Some("ada"), &[Some(0)]), "her container runs as root");
    assert!(!ada.may_act_on(Some("grace"), &[Some(1000)]), "its label names another");
    assert!(ada.may_act_on(None, &[Some(1000), Some(1000)]));
    assert!(!ada.may_act_on(None, &[Some(1000), Some(1001)]), "another's processes are in it");
    assert!(!ada.may_act_on(None, &[Some(1000), None]), "whose it is, is not known");
    assert!(!ada.may_act_on(None, &[]));
    assert!(root.may_act_on(Some("ada"), &[]) && root.may_act_on(None, &[Some(5)]));
    let nameless = Caller { uid: 7, user: None, is_admin: false };
    assert!(!nameless.may_act_on(Some("ada"), &[Some(7)]));
}
