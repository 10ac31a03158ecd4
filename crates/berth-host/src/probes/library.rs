//! Driver libraries: opening them, and probing the rare calls of every process that uses one.
//!
//! A library is known by device and inode. Replacing the file, as a driver upgrade does, makes another library;
//! processes still using the old one stay watched.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use berth_model::ProcKey;
use object::read::ReadCache;

use super::elf::{self, ElfError, Point};
use super::error::ProbeError;
use super::find;
use super::function::{Call, Cookie, FUNCTIONS, Hot, Side};
use super::kernel::{Kernel, Links, Place};
use super::maps;
use super::program::Program;

/// Position in the list of watched libraries: they are never forgotten, so it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LibraryId(pub u32);

#[derive(Debug, Default)]
pub struct Libraries {
    watched: Vec<Library>,
}

#[derive(Debug)]
struct Library {
    identity: (u64, u64),
    path: PathBuf,
    file: File,
    points: Vec<Point>,
    /// Probes on the rare calls, for every process.
    _rare: Vec<Links>,
}

// === impl Libraries ===

impl Libraries {
    /// Watches what `library` means on this host: a path, or a name as the dynamic loader would look it up.
    pub fn watch(&mut self, kernel: &Kernel, library: &Path) -> Result<LibraryId, ProbeError> {
        let mut first_error = None;
        for path in find::candidates(library) {
            let opened = File::open(&path).map_err(|source| ProbeError::OpenLibrary { path: path.clone(), source });
            match opened.and_then(|file| self.watch_file(kernel, file, path)) {
                Ok(id) => return Ok(id),
                // A candidate that exists and cannot be used says more than one that does not exist.
                Err(error) if first_error.is_none() || !is_missing(&error) => first_error = Some(error),
                Err(_) => {}
            }
        }
        let source = io::Error::from(io::ErrorKind::NotFound);
        let missing = ProbeError::OpenLibrary { path: library.to_owned(), source };
        Err(first_error.filter(|e| !is_missing(e)).unwrap_or(missing))
    }

    /// Watches the library that process `pid` has loaded, a container's private copy included. `None`: it has none.
    pub fn watch_of(&mut self, kernel: &Kernel, proc_root: &Path, pid: u32) -> Result<Option<LibraryId>, ProbeError> {
        let process = proc_root.join(pid.to_string());
        let Ok(maps) = fs::read_to_string(process.join("maps")) else { return Ok(None) };
        let Some(mapped) = maps::driver_library(&maps) else { return Ok(None) };
        let inside = mapped.path.strip_prefix("/").unwrap_or(&mapped.path);
        let file = File::open(process.join("map_files").join(&mapped.range))
            .or_else(|_| File::open(process.join("root").join(inside)))
            .map_err(|source| ProbeError::OpenLibrary { path: mapped.path.clone(), source })?;
        self.watch_file(kernel, file, mapped.path).map(Some)
    }

    /// Probes one kind of hot call in one process.
    pub fn attach_hot(&self, kernel: &Kernel, id: LibraryId, hot: Hot, process: ProcKey) -> Result<Links, ProbeError> {
        let library = &self.watched[id.0 as usize];
        let places = places(id, &library.points, |call| call == hot.call());
        if places.is_empty() {
            let source = ElfError::NoSuchFunctions;
            return Err(ProbeError::Library { path: library.path.clone(), source });
        }
        let program = match hot {
            Hot::Allocation => Program::Allocation,
            Hot::Launch => Program::Launch,
            Hot::Drained => Program::Drained,
        };
        let links = kernel.attach(program, &library.file, &places, Some(process.pid));
        links.map_err(|source| ProbeError::Attach { path: library.path.clone(), source })
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.watched.iter().map(|l| l.path.clone()).collect()
    }

    fn watch_file(&mut self, kernel: &Kernel, file: File, path: PathBuf) -> Result<LibraryId, ProbeError> {
        let open_error = |source| ProbeError::OpenLibrary { path: path.clone(), source };
        let metadata = file.metadata().map_err(open_error)?;
        let identity = (metadata.dev(), metadata.ino());
        if let Some(known) = self.watched.iter().position(|l| l.identity == identity) {
            return Ok(library_id(known));
        }
        let reading = ReadCache::new(file.try_clone().map_err(open_error)?);
        let points = elf::points(&reading).map_err(|source| ProbeError::Library { path: path.clone(), source })?;
        let id = library_id(self.watched.len());
        let rare = attach_rare(kernel, id, &file, &points)
            .map_err(|source| ProbeError::Attach { path: path.clone(), source })?;
        tracing::info!(path = %path.display(), functions = points.len(), "watching driver library");
        self.watched.push(Library { identity, path, file, points, _rare: rare });
        Ok(id)
    }
}

fn is_missing(error: &ProbeError) -> bool {
    matches!(error, ProbeError::OpenLibrary { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn library_id(index: usize) -> LibraryId {
    LibraryId(u32::try_from(index).expect("fewer libraries than processes"))
}

fn attach_rare(kernel: &Kernel, id: LibraryId, file: &File, points: &[Point]) -> io::Result<Vec<Links>> {
    let mut rare = Vec::new();
    for (program, side) in [(Program::Entry, Side::Entry), (Program::Return, Side::Return)] {
        let places = places(id, points, |call| call.hot().is_none() && call.side() == side);
        if !places.is_empty() {
            rare.push(kernel.attach(program, file, &places, None)?);
        }
    }
    Ok(rare)
}

/// The places of a library where a call that is `wanted` can be told.
fn places(id: LibraryId, points: &[Point], wanted: impl Fn(Call) -> bool) -> Vec<Place> {
    let mut places = Vec::new();
    for point in points {
        let calls = FUNCTIONS[usize::from(point.function)].calls;
        for call in calls.iter().copied().filter(|call| wanted(*call)) {
            let cookie = Cookie { library: id.0, function: point.function, call };
            places.push(Place { offset: point.offset, cookie });
        }
    }
    places
}
