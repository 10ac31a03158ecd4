//! A directory of ours alone, never followed through a link: the journal's, whose files are written whole or not at all, and
//! the history's, whose files grow.

use std::fs::File;
use std::io;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, fstat, fsync, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

const OURS_ALONE: Mode = Mode::from_raw_mode(0o700);
const FILE: Mode = Mode::from_raw_mode(0o600);
const OTHERS: u32 = 0o077;
/// No record comes near it; a file that does is none of ours.
const LONGEST: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("making the directory {}", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("opening the directory {} (it may not be a link)", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} belongs to user {uid}, not to us: what its owner puts there would be believed", path.display())]
    Foreign { path: PathBuf, uid: u32 },
    #[error("taking the permissions of others on {} away", path.display())]
    Permissions { path: PathBuf, source: io::Error },
}

/// An open directory that belongs to this user and that nobody else can look into.
#[derive(Debug)]
pub struct Place {
    dir: OwnedFd,
    path: PathBuf,
}

impl Place {
    /// Makes the directory if it is missing.
    pub fn make(path: &Path) -> Result<Place, PlaceError> {
        let failed = |source: io::Error| PlaceError::Make { path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        match mkdirat(CWD, path, OURS_ALONE) {
            Ok(()) | Err(Errno::EXIST) => Place::open(path),
            Err(error) => Err(failed(error.into())),
        }
    }

    pub fn open(path: &Path) -> Result<Place, PlaceError> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let failed = |source: Errno| PlaceError::Open { path: path.to_owned(), source: source.into() };
        let dir = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        let found = fstat(&dir).map_err(failed)?;
        if found.st_uid != geteuid().as_raw() {
            return Err(PlaceError::Foreign { path: path.to_owned(), uid: found.st_uid });
        }
        if found.st_mode & OTHERS != 0 {
            let failed = |source: Errno| PlaceError::Permissions { path: path.to_owned(), source: source.into() };
            fchmod(&dir, OURS_ALONE).map_err(failed)?;
        }
        Ok(Place { dir, path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.dir)? {
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }

    /// All of a plain file of this user; anything else is an error.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name)?.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The same, to be read in parts.
    pub fn file(&self, name: &str) -> io::Result<File> {
        // A pipe in a file's place must not keep us waiting.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(&self.dir, name, flags, Mode::empty())?;
        let found = fstat(&file)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("it is no plain file"));
        }
        if found.st_uid != geteuid().as_raw() {
            return Err(io::Error::other(format!("it belongs to user {}", found.st_uid)));
        }
        Ok(File::from(file))
    }

    /// A file to write on at its end; made if it is missing.
    pub fn growing(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.dir, name, flags, FILE)?))
    }

    /// Files made and removed here stay so, whatever happens to the machine.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.dir)?)
    }

    /// Puts a file in the place of the one of that name. Whoever looks finds the old or the new one, whole.
    pub fn replace(&self, name: &str, scratch: &str, bytes: &[u8]) -> io::Result<()> {
        self.remove(scratch)?;
        let written = self.write_new(scratch, bytes).and_then(|_| self.rename(scratch, name));
        if written.is_err() {
            // The first error is the one to tell.
            let _ = self.remove(scratch);
        }
        written
    }

    /// The same, and it stays so whatever happens to the machine.
    pub fn replace_for_good(&self, name: &str, scratch: &str, bytes: &[u8]) -> io::Result<()> {
        self.remove(scratch)?;
        let synced = self.write_new(scratch, bytes).and_then(|file| file.sync_all());
        let written = synced.and_then(|()| self.rename(scratch, name));
        if written.is_err() {
            // The first error is the one to tell.
            let _ = self.remove(scratch);
        }
        written?;
        if let Err(error) = self.sync() {
            // It is in place for everybody who looks.
            tracing::warn!(%error, path = %self.path.join(name).display(), "what was written may not outlive a power failure");
        }
        Ok(())
    }

    fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.dir, name, flags, FILE)?);
        file.write_all(bytes)?;
        Ok(file)
    }

    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.dir, from, &self.dir, to)?)
    }

    /// No error if there is none.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.dir, name, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// A file to lock; made if it is missing.
    pub fn lock_file(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.dir, name, flags, FILE)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn directory_and_files_are_for_us_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run/holds");
        let place = Place::make(&path).unwrap();
        place.replace("1.hold", "1.new", b"x").unwrap();
        assert_eq!((mode(&path), mode(&path.join("1.hold"))), (0o700, 0o600));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Place::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700, "permissions that were widened are taken away again");
    }

    #[test]
    fn a_link_in_the_directory_s_or_a_file_s_place_is_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let real = parent.path().join("real");
        let place = Place::make(&real).unwrap();
        symlink(&real, parent.path().join("link")).unwrap();
        assert!(matches!(Place::make(&parent.path().join("link")), Err(PlaceError::Open { .. })));

        let elsewhere = parent.path().join("elsewhere");
        std::fs::write(&elsewhere, "theirs").unwrap();
        symlink(&elsewhere, real.join("1.hold")).unwrap();
        symlink(&elsewhere, real.join("1.new")).unwrap();
        assert!(place.read("1.hold").is_err());
        place.replace("1.hold", "1.new", b"ours").unwrap();
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "theirs");
        assert_eq!(place.read("1.hold").unwrap(), b"ours");
    }

    #[test]
    fn a_directory_or_file_of_someone_else_is_refused() {
        if !geteuid().is_root() {
            eprintln!("SKIPPED a_directory_or_file_of_someone_else_is_refused: only root can give files away");
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("holds");
        let place = Place::make(&path).unwrap();
        place.replace("1.hold", "1.new", b"x").unwrap();
        std::os::unix::fs::chown(path.join("1.hold"), Some(1234), None).unwrap();
        assert!(place.read("1.hold").unwrap_err().to_string().contains("1234"));
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        assert!(matches!(Place::open(&path), Err(PlaceError::Foreign { uid: 1234, .. })));
    }

    #[test]
    fn a_pipe_in_a_file_s_place_keeps_nobody_waiting() {
        let parent = tempfile::tempdir().unwrap();
        let place = Place::make(&parent.path().join("holds")).unwrap();
        rustix::fs::mknodat(&place.dir, "1.hold", FileType::Fifo, FILE, 0).unwrap();
        assert!(place.read("1.hold").is_err());
    }
}
