//! `--kernel-level` of `run` and `create`, turned into what lets a container take part at the level of kernels: mounts, environment, a label.
//!
//! The image is untouched. What is preloaded by the image or by the command line stays, before berth's library. Pure.

use std::path::Path;

use berth_model::taking_part::{LABEL, Mount, PRELOAD_VARIABLE, SOCKET_VARIABLE, Share};

use super::deadline;
use super::flags::{Flag, FlagSet, Standing, Takes};

const FLAG: &str = "kernel-level";
/// Values by which the client takes a switch for one that is not given.
const OFF: [&str; 6] = ["false", "False", "FALSE", "f", "F", "0"];
/// By which a container has a latency to keep.
const LATENCY: &str = "berth.slo.latency";
/// Read by the driver where it computes through MPS: 0 goes before 1.
const MPS_PRIORITY: &str = "CUDA_MPS_CLIENT_PRIORITY";

/// What the host has for it, as the settings say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub library: String,
    pub socket: String,
    /// An MPS server is run here.
    pub has_mps: bool,
}

/// What of an image matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// What it preloads itself.
    pub preload: Option<String>,
    /// Its C library is musl, which cannot load a library that is made for glibc.
    pub is_musl: bool,
}

/// Where a command line says what its container preloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preload {
    Said(String),
    /// As in the environment of the client.
    OfClient,
    /// Perhaps in one of these files of variables; the last one counts.
    Files(Vec<String>),
}

/// What stands behind `run` or `create`, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where the flag is, each time.
    pub at: Vec<usize>,
    pub is_on: bool,
    /// Behind the last of all flags.
    pub end: usize,
    pub image: Option<String>,
    pub preload: Preload,
    has_latency: bool,
    has_priority: bool,
}

/// Whether it is worth reading the flags at all.
pub fn may_be_in(args: &[String]) -> bool {
    args.iter().any(|arg| arg.strip_prefix("--").is_some_and(|name| name == FLAG || name.starts_with("kernel-level=")))
}

/// Nothing is looked for behind a flag that is not of the client's `flags`: it will refuse it.
pub fn find(args: &[String], flags: &FlagSet) -> Found {
    let flags = flags.clone().with("deadline", None, Takes::Value).with(FLAG, None, Takes::Nothing);
    let mut found = Found {
        at: Vec::new(),
        is_on: false,
        end: 0,
        image: None,
        preload: Preload::Files(Vec::new()),
        has_latency: false,
        has_priority: false,
    };
    loop {
        if let Some(tokens) = deadline::tokens_at(args, found.end) {
            found.end += tokens;
            continue;
        }
        match flags.standing(args, found.end) {
            Standing::Unknown => return found,
            Standing::Operand(image) => {
                found.image = args.get(image).cloned();
                return found;
            }
            Standing::Flag(flag) => found.note(&flag),
        }
    }
}

impl Found {
    fn note(&mut self, flag: &Flag<'_>) {
        if flag.is(FLAG, None) {
            self.at.push(self.end);
            self.is_on = !flag.value.is_some_and(|value| OFF.contains(&value));
        }
        match flag.value {
            Some(variable) if flag.is("env", Some('e')) => self.note_variable(variable),
            Some(label) if flag.is("label", Some('l')) => {
                self.has_latency |= label.split_once('=').is_some_and(|(name, _)| name == LATENCY);
            }
            // Single variables go before those in files.
            Some(file) if flag.is("env-file", None) => {
                if let Preload::Files(files) = &mut self.preload {
                    files.push(file.to_owned());
                }
            }
            _ => {}
        }
        self.end += flag.tokens;
    }

    fn note_variable(&mut self, variable: &str) {
        match variable.split_once('=') {
            Some((PRELOAD_VARIABLE, value)) => self.preload = Preload::Said(value.to_owned()),
            None if variable == PRELOAD_VARIABLE => self.preload = Preload::OfClient,
            Some((MPS_PRIORITY, _)) => self.has_priority = true,
            _ => {}
        }
    }

    /// What the client is given, behind its other flags. `own` is what the container preloads anyway.
    pub fn instead(&self, offer: &Offer, own: Option<&str>) -> Vec<String> {
        let share = Share::new(Path::new(&offer.library), Path::new(&offer.socket));
        let mount = |Mount { source, target }: &Mount| {
            format!("--mount=type=bind,source={},target={target},readonly", source.display())
        };
        let mut args = vec![format!("--label={LABEL}=true")];
        args.extend(share.mounts.iter().map(mount));
        args.push(format!("--env={PRELOAD_VARIABLE}={}", share.preload_behind(own)));
        args.push(format!("--env={SOCKET_VARIABLE}={}", share.socket));
        if offer.has_mps && !self.has_priority {
            args.push(format!("--env={MPS_PRIORITY}={}", u8::from(!self.has_latency)));
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use berth_model::taking_part;
    use berth_proto::shim;

    #[test]
    fn the_library_is_found_and_finds_the_socket_by_the_names_it_was_built_with() {
        assert_eq!(taking_part::LIBRARY_NAME, shim::LIBRARY_NAME);
        assert_eq!(taking_part::SOCKET_VARIABLE, shim::SOCKET_VARIABLE);
    }
}
