//! One file of the journal: an entry, which boot it is of, and by what to know its cgroup again.
//!
//! Fields that undoing needs come first, so that a file that ends too early loses the others. A record of another format
//! is read as far as its fields mean what they mean here; each part is then checked against the live system before use.

use std::io;
use std::path::{Path, PathBuf};

use berth_model::hold::{By, Freezer, Grip, SHELTER, Want};
use berth_model::{ContainerId, Mono, ProcKey, TenantKey};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::mend::mend;
use crate::{Entry, NeedsBack};

/// Counted up when a field changes its meaning; a further field is no change, nor is a further word in one: who does not know it reads
/// the other fields, and takes an unknown freezer for all of them at once.
pub const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Record<E> {
    format: u32,
    boot: String,
    /// Inode of the cgroup's directory: another cgroup made at the same path has another.
    cgroup_inode: Option<u64>,
    entry: E,
}

/// An entry as it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    pub entry: Entry,
    /// Read in full, as this version writes it. Otherwise parts may be missing.
    pub is_whole: bool,
    pub(crate) cgroup_inode: Option<u64>,
}

/// Why a record says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Nothing of it can be true any more.
    #[error("it is of an earlier boot")]
    OtherBoot,
    #[error("it does not say of which boot it is")]
    NoBoot,
    #[error("it is no record of a hold")]
    NoRecord,
}

/// Fails for a path that is no text, which JSON cannot hold.
pub fn encode(entry: &Entry, boot: &str) -> io::Result<Vec<u8>> {
    let cgroup_inode = entry.cgroup.as_deref().and_then(crate::live::inode);
    let record = Record { format: FORMAT, boot: boot.to_owned(), cgroup_inode, entry };
    Ok(serde_json::to_vec(&record)?)
}

/// `file` stands for the tenant where the record does not name it.
pub fn decode(bytes: &[u8], boot: &str, file: &Path) -> Result<Kept, Unreadable> {
    if let Ok(Record { format, boot: written, cgroup_inode, entry }) = serde_json::from_slice::<Record<Entry>>(bytes) {
        if written != boot {
            return Err(Unreadable::OtherBoot);
        }
        return Ok(Kept { entry, is_whole: format == FORMAT, cgroup_inode });
    }
    let text = String::from_utf8_lossy(bytes);
    let value = mend(&text).ok_or(Unreadable::NoRecord)?;
    match value.get("boot").and_then(Value::as_str) {
        None => Err(Unreadable::NoBoot),
        Some(written) if written != boot => Err(Unreadable::OtherBoot),
        Some(_) => salvage(&value, file).ok_or(Unreadable::NoRecord),
    }
}

/// Every part that can be read, without the others. `None` if there is nothing to undo in it.
fn salvage(value: &Value, file: &Path) -> Option<Kept> {
    let found = value.get("entry")?;
    let cgroup: Option<PathBuf> = part(found, "cgroup");
    let cgroup_inode = part(value, "cgroup_inode");
    let mut grip = found.get("grip").map(grip).unwrap_or_default();
    let is_torn = found.get("grip").is_none_or(|grip| grip.get("sheltered").is_none());
    if is_torn && cgroup.as_deref().is_some_and(|dir| has_shelter(dir, cgroup_inode)) {
        match grip.frozen {
            Some(Freezer::Cgroup | Freezer::Docker) => grip.sheltered = true,
            // Alone: with a freeze of its own cgroup it would be thawed there too, and a person's pause with it.
            Some(Freezer::Shelter) | None => grip.frozen = Some(Freezer::Shelter),
        }
    }
    let stand_in = || TenantKey::Cgroup { path: cgroup.as_deref().unwrap_or(file).display().to_string() };
    let tenant: TenantKey = part(found, "tenant").unwrap_or_else(stand_in);
    let name = part(found, "name").unwrap_or_else(|| tenant.to_string());
    let entry = Entry {
        container: part::<ContainerId>(found, "container"),
        want: Want::Free,
        needs_back: needs_back(found),
        by: By::Policy,
        since: part(found, "since").unwrap_or(Mono(0)),
        since_wall: part(found, "since_wall").unwrap_or(Timestamp::UNIX_EPOCH),
        reason: part(found, "reason").unwrap_or_default(),
        tenant,
        cgroup,
        grip,
        name,
    };
    (!entry.grip.is_empty()).then_some(Kept { entry, is_whole: false, cgroup_inode })
}

/// Nobody but berth makes one: that it is there in the cgroup that was meant says what a torn record does not.
fn has_shelter(cgroup: &Path, recorded: Option<u64>) -> bool {
    recorded.is_some() && crate::live::inode(cgroup) == recorded && cgroup.join(SHELTER).is_dir()
}

fn grip(found: &Value) -> Grip {
    let set = |name: &str| {
        let all = found.get(name).and_then(Value::as_array).into_iter().flatten();
        all.filter_map(|one| ProcKey::deserialize(one).ok()).collect()
    };
    let frozen = found.get("frozen").filter(|freezer| !freezer.is_null());
    let known = frozen.map(Freezer::deserialize);
    let is_unknown = matches!(known, Some(Err(_)));
    Grip {
        gated: set("gated"),
        stopped: set("stopped"),
        // By whatever a later version freezes, the steps back from these undo all that a cgroup and an engine can.
        frozen: known.map(|known| known.unwrap_or(Freezer::Docker)),
        sheltered: is_unknown || part(found, "sheltered").unwrap_or_default(),
        locked: set("locked"),
        parked: set("parked"),
    }
}

fn needs_back(found: &Value) -> Vec<NeedsBack> {
    let all = found.get("needs_back").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| NeedsBack::deserialize(one).ok()).collect()
}

fn part<T: for<'de> Deserialize<'de>>(value: &Value, name: &str) -> Option<T> {
    value.get(name).and_then(|part| T::deserialize(part).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{any_entry, entry};

    const BOOT: &str = "b00t";

    fn read(bytes: &[u8]) -> Result<Kept, Unreadable> {
        decode(bytes, BOOT, Path::new("7.hold"))
    }

    fn processes(grip: &Grip) -> [&std::collections::BTreeSet<ProcKey>; 4] {
        [&grip.gated, &grip.stopped, &grip.locked, &grip.parked]
    }

    #[test]
    fn a_record_of_another_boot_is_told_apart_even_if_torn() {
        let bytes = encode(&entry("/a"), "other").unwrap();
        assert_eq!(read(&bytes), Err(Unreadable::OtherBoot));
        assert_eq!(read(&bytes[..bytes.len() - 2]), Err(Unreadable::OtherBoot));
    }

    #[test]
    fn a_newer_format_with_further_fields_is_read_and_marked() {
        let mut value: Value = serde_json::from_slice(&encode(&entry("/a"), BOOT).unwrap()).unwrap();
        value["format"] = 2.into();
        value["entry"]["further"] = "x".into();
        let kept = read(value.to_string().as_bytes()).unwrap();
        assert_eq!((kept.entry, kept.is_whole), (entry("/a"), false));
    }

    #[test]
    fn a_record_whose_want_and_tenant_nobody_knows_can_still_be_undone() {
        let mut value: Value = serde_json::from_slice(&encode(&entry("/a"), BOOT).unwrap()).unwrap();
        value["entry"]["want"] = "levitate".into();
        value["entry"]["tenant"] = serde_json::json!({"kind": "galaxy"});
        let kept = read(value.to_string().as_bytes()).unwrap();
        assert!(!kept.is_whole && kept.entry.grip == entry("/a").grip && kept.entry.want == Want::Free);
        assert_eq!(kept.entry.cgroup, entry("/a").cgroup);
    }

    /// As "shelter" was to those who knew of the cgroup and the engine alone.
    #[test]
    fn who_is_frozen_by_what_nobody_knows_is_released_from_everything() {
        let alone = Grip { frozen: Some(Freezer::Cgroup), ..Grip::default() };
        let known = Entry { grip: alone, ..entry("/a") };
        let mut value: Value = serde_json::from_slice(&encode(&known, BOOT).unwrap()).unwrap();
        value["entry"]["grip"]["frozen"] = "amber".into();
        let kept = read(value.to_string().as_bytes()).unwrap();
        let everything = Grip { frozen: Some(Freezer::Docker), sheltered: true, ..Grip::default() };
        assert_eq!((kept.entry.grip, kept.is_whole), (everything, false));
    }

    /// A container that a person has paused has none.
    #[test]
    fn a_record_torn_before_what_was_done_is_undone_by_the_shelter_and_by_nothing_else() {
        let host = tempfile::tempdir().unwrap();
        let cgroup = host.path().join("c");
        std::fs::create_dir_all(cgroup.join(SHELTER)).unwrap();
        let alone = Grip { frozen: Some(Freezer::Shelter), ..Grip::default() };
        let held = Entry { cgroup: Some(cgroup.clone()), grip: alone.clone(), ..entry("/a") };
        let bytes = encode(&held, BOOT).unwrap();
        let at = |word: &str| bytes.windows(word.len()).position(|part| part == word.as_bytes()).unwrap();
        let behind = read(&bytes[..at("\"sheltered\"")]).unwrap();
        assert_eq!(behind.entry.grip, alone, "torn right behind it: no more than that is undone");
        let torn = &bytes[..at("\"frozen\"") + 12];
        let kept = read(torn).unwrap();
        assert_eq!((kept.entry.grip, kept.entry.cgroup, kept.is_whole), (alone, held.cgroup, false));
        std::fs::remove_dir(cgroup.join(SHELTER)).unwrap();
        assert_eq!(read(torn), Err(Unreadable::NoRecord));
        std::fs::rename(&cgroup, host.path().join("before")).unwrap();
        std::fs::create_dir_all(cgroup.join(SHELTER)).unwrap();
        assert_eq!(read(torn), Err(Unreadable::NoRecord), "it is another cgroup's");
    }

    #[test]
    fn what_is_no_record_says_so() {
        for bytes in [&b""[..], b"\xff\xfe", b"{}", b"[1]", br#"{"boot":"b00t"}"#, br#"{"boot":"b00t","entry":{}}"#] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(entry in any_entry()) {
            let kept = read(&encode(&entry, BOOT).unwrap()).unwrap();
            prop_assert_eq!((kept.entry, kept.is_whole), (entry, true));
        }

        /// Wherever it was torn: nothing is made up.
        #[test]
        fn a_torn_record_says_less_and_never_something_else(entry in any_entry(), cut: prop::sample::Index) {
            let bytes = encode(&entry, BOOT).unwrap();
            let Ok(kept) = read(&bytes[..cut.index(bytes.len())]) else { return Ok(()) };
            prop_assert!(!kept.is_whole);
            prop_assert_eq!(&kept.entry.tenant, &entry.tenant);
            prop_assert!(kept.entry.cgroup.is_none() || kept.entry.cgroup == entry.cgroup);
            prop_assert!(kept.entry.container.is_none() || kept.entry.container == entry.container);
            prop_assert!(kept.entry.needs_back.iter().all(|one| entry.needs_back.contains(one)));
            prop_assert!(kept.entry.grip.frozen.is_none() || kept.entry.grip.frozen == entry.grip.frozen);
            for (some, all) in processes(&kept.entry.grip).iter().zip(processes(&entry.grip)) {
                prop_assert!(some.is_subset(all));
            }
        }

        #[test]
        fn garbage_is_never_mistaken(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(read(&bytes).is_err());
        }
    }
}
