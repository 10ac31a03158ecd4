//! Freezes in the shelter: what they leave alone, and what is done where there can be none.

use super::*;

/// Of a container, which may have cgroups inside.
fn container(hierarchy: &Path) -> TestCgroup {
    TestCgroup::at(hierarchy.join(format!("docker-{:064x}.scope", std::process::id())))
}

/// Whoever held it was killed before it heard of the pause. All that is known is that it was frozen in the shelter.
#[test]
fn what_a_person_paused_while_it_stood_in_the_shelter_stays_paused() {
    for hierarchy in hierarchies("what_a_person_paused_while_it_stood_in_the_shelter_stays_paused") {
        let (cgroup, killed) = (container(&hierarchy), hands());
        let mut child = cgroup.shell("exec sleep 600");
        let subject = subject(&cgroup.path);
        killed.perform(&subject, Step::Freeze(By::Shelter)).unwrap();
        assert_eq!(motion(&cgroup.path.join("berth-shelter")), Motion::Frozen);
        // An engine does so: it finds the container's own cgroup thawed.
        cgroup.dir().freeze(Duration::from_secs(2)).unwrap();
        hands().perform(&subject, Step::Thaw(By::Shelter)).unwrap();
        let after = motion(&cgroup.path);
        cgroup.dir().thaw(Duration::from_secs(2)).unwrap();
        let is_sheltered = cgroup.path.join("berth-shelter").exists();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((after, is_sheltered), (Motion::Frozen, false), "{hierarchy:?}");
    }
}

#[test]
fn one_for_whom_no_shelter_can_be_made_is_frozen_and_thawed_where_it_is() {
    for hierarchy in hierarchies("one_for_whom_no_shelter_can_be_made_is_frozen_and_thawed_where_it_is") {
        let cgroup = TestCgroup::new(&hierarchy);
        // v1 knows no such limit.
        let limit = cgroup.path.join("cgroup.max.descendants");
        if !limit.exists() {
            continue;
        }
        std::fs::write(limit, "0").unwrap();
        let mut child = cgroup.shell("sleep 600");
        let subject = subject(&cgroup.path);
        let frozen = hands().perform(&subject, Step::Freeze(By::Shelter));
        let while_held = motion(&cgroup.path);
        let thawed = hands().perform(&subject, Step::Thaw(By::Shelter));
        let after = motion(&cgroup.path);
        cgroup.dir().thaw(Duration::from_secs(2)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((frozen, while_held), (Ok(()), Motion::Frozen), "{hierarchy:?}");
        assert_eq!((thawed, after), (Ok(()), Motion::Thawed), "{hierarchy:?}");
    }
}
