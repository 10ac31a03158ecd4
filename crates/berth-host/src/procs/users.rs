//! Names of users, from the passwd file alone.
//!
//! The resolver of the C library would also ask directory servers, which can take seconds, and a monitor must not wait.
//! A user the file does not know is shown by number.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

/// The passwd file, read again when it has changed.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    modified: Option<SystemTime>,
    names: HashMap<u32, String>,
}

impl Users {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), modified: None, names: HashMap::new() }
    }

    pub fn name(&mut self, uid: u32) -> Option<String> {
        let modified = fs::metadata(&self.path).and_then(|meta| meta.modified()).ok();
        if modified != self.modified {
            self.names = parse(&fs::read_to_string(&self.path).unwrap_or_default());
            self.modified = modified;
        }
        self.names.get(&uid).cloned()
    }
}

/// Of several names for one user the first counts, as in getpwuid(3).
fn parse(passwd: &str) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in passwd.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(uid)) = (fields.next(), fields.nth(1).and_then(|uid| uid.parse().ok())) {
            names.entry(uid).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_user_counts_and_odd_lines_do_not() {
        let names = parse("root:x:0:0::/:/bin/sh\n# note\n+::::::\ntoor:x:0:0::/:/bin/sh\nann:x:1000:1000::/:\n");
        assert_eq!(names, HashMap::from([(0, "root".into()), (1000, "ann".into())]));
    }

    #[test]
    fn a_user_added_later_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "ann:x:1000:1000::/:\n").unwrap();
        let mut users = Users::new(file.path());
        assert_eq!(users.name(1001), None);
        fs::write(file.path(), "ann:x:1000:1000::/:\nbob:x:1001:1001::/:\n").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        fs::File::options().write(true).open(file.path()).unwrap().set_modified(later).unwrap();
        assert_eq!(users.name(1001), Some("bob".into()));
    }

    #[test]
    fn without_a_passwd_file_users_have_no_names() {
        assert_eq!(Users::new("/nonexistent/passwd").name(0), None);
    }
}
