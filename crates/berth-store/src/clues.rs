//! Whom a record is about that cannot be used: read from its text, for people.
//!
//! A record that ends too early names its tenant before it says what was done to it. Nothing is undone by what is found here.

use std::path::PathBuf;

/// Shorter beginnings of a container's id may be another's.
const ENOUGH_OF_AN_ID: usize = 12;

/// `None` is what does not stand there, or not to its end.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Clues {
    pub called: Option<String>,
    /// Its id, or enough of the beginning of it for an engine to know it by.
    pub container: Option<String>,
    /// Directory of the cgroup that can be frozen.
    pub cgroup: Option<PathBuf>,
    /// Inode of that directory, which stands before everything else.
    pub cgroup_inode: Option<u64>,
}

impl Clues {
    pub fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let whole = |field| string(&text, field).filter(|it| it.is_whole).map(|it| it.text);
        let id = |field| string(&text, field).filter(|it| it.text.len() >= ENOUGH_OF_AN_ID).map(|it| it.text);
        let is_container = text.contains(r#""kind":"container""#);
        Self {
            called: whole("name").or_else(|| whole("path")),
            container: id("container").or_else(|| id("id").filter(|_| is_container)),
            cgroup: whole("cgroup").map(PathBuf::from),
            cgroup_inode: number(&text, "cgroup_inode"),
        }
    }

    /// What people know it by; `None` if nothing tells.
    pub fn name(&self) -> Option<String> {
        let container = || Some(self.container.as_ref()?.chars().take(ENOUGH_OF_AN_ID).collect());
        let cgroup = || Some(self.cgroup.as_ref()?.display().to_string());
        self.called.clone().or_else(container).or_else(cgroup)
    }
}

#[derive(Debug)]
struct Found {
    text: String,
    is_whole: bool,
}

/// The first string of this name. Quotes inside strings are escaped, so that no string looks like a field.
fn string(text: &str, field: &str) -> Option<Found> {
    let begin = format!("\"{field}\":\"");
    let rest = &text[text.find(&begin)? + begin.len()..];
    let mut is_escaped = false;
    let end = rest.find(|character| {
        let is_end = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_end
    });
    let Some(end) = end else { return Some(Found { text: rest.to_owned(), is_whole: false }) };
    let text = serde_json::from_str(&format!("\"{}\"", &rest[..end])).ok()?;
    Some(Found { text, is_whole: true })
}

/// Half a number is another number: it counts if something follows it.
fn number(text: &str, field: &str) -> Option<u64> {
    let begin = format!("\"{field}\":");
    let (number, _) = text[text.find(&begin)? + begin.len()..].split_once(',')?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use berth_model::{ContainerId, Runtime, TenantKey};

    use super::*;
    use crate::Entry;
    use crate::record::encode;
    use crate::testing::entry;

    fn written() -> Vec<u8> {
        let id = ContainerId("0123456789abcdef".repeat(4));
        let tenant = TenantKey::Container { runtime: Runtime::Docker, id: id.clone() };
        let name = r#"it's "cgroup":"/wrong""#.to_owned();
        encode(&Entry { tenant, container: Some(id), name, ..entry("/a") }, &"b".repeat(36)).unwrap()
    }

    #[test]
    fn the_less_of_a_record_is_left_the_less_it_tells_and_never_something_else() {
        let (bytes, all) = (written(), Clues::of(&written()));
        assert_eq!(all.called.as_deref(), Some(r#"it's "cgroup":"/wrong""#));
        for length in 0..bytes.len() {
            let found = Clues::of(&bytes[..length]);
            assert!(found.called.is_none() || found.called == all.called, "{found:?}");
            assert!(found.cgroup.is_none() || found.cgroup == all.cgroup, "{found:?}");
            let begins = |id: &String| all.container.as_ref().unwrap().starts_with(id);
            assert!(found.container.as_ref().is_none_or(begins), "{found:?}");
        }
    }

    #[test]
    fn a_record_torn_in_the_name_of_its_container_still_tells_whom_to_look_for() {
        let bytes = written();
        let text = String::from_utf8_lossy(&bytes);
        let id = text.find("0123").unwrap();
        assert_eq!(Clues::of(&bytes[..id + 20]).name().as_deref(), Some("0123456789ab"));
        assert_eq!(Clues::of(&bytes[..id + 5]), Clues::default(), "it may be another's");
        let clues = |text: &str| Clues::of(text.as_bytes()).cgroup_inode;
        assert_eq!((clues(r#"{"cgroup_inode":77,"#), clues(r#"{"cgroup_inode":7"#)), (Some(77), None));
        assert_eq!(Clues::of(b"nonsense").name(), None);
    }
}
