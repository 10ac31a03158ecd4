//! `--kernel-level` of `run` and `create`, turned into what lets a container take part at the level of kernels: mounts, environment, a label.
//!
//! The image is untouched: the library and the directory of the daemon's socket are mounted read-only. The directory and not the socket: a
//! later daemon's socket is found there, too. An `LD_PRELOAD` that the image sets is replaced.

use std::path::Path;

use berth_proto::shim::{LIBRARY_NAME, SOCKET_VARIABLE};

use super::deadline;
use super::flags::{FlagSet, Standing, Takes};

const FLAG: &str = "kernel-level";
/// By which the daemon knows who asks for it.
const LABEL: &str = "berth.kernel-level=true";
/// Where both are inside a container.
const INSIDE: &str = "/run/berth";

/// What the host has for it, as the settings say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub library: String,
    pub socket: String,
}

/// Whether it is worth reading the flags at all.
pub fn may_be_in(args: &[String]) -> bool {
    args.iter().any(|arg| arg.strip_prefix("--").is_some_and(|name| name == FLAG || name.starts_with("kernel-level=")))
}

/// Where among `args`, which stand behind `run` or `create`, the flag is; `=false` is none. The client's own flags are `flags`.
pub fn find(args: &[String], flags: &FlagSet) -> Vec<usize> {
    let flags = flags.clone().with("deadline", None, Takes::Value).with(FLAG, None, Takes::Nothing);
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        if let Some(tokens) = deadline::tokens_at(args, at) {
            at += tokens;
            continue;
        }
        match flags.standing(args, at) {
            Standing::Unknown | Standing::Operand(_) => return found,
            Standing::Flag(flag) => {
                if flag.is(FLAG, None) {
                    found.push(at);
                }
                at += flag.tokens;
            }
        }
    }
}

/// What the client is given in its place.
pub fn instead(offer: &Offer) -> Vec<String> {
    let library = format!("{INSIDE}/lib/{LIBRARY_NAME}");
    let socket = Path::new(&offer.socket);
    let name = socket.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let directory = socket.parent().unwrap_or(Path::new("/")).display().to_string();
    let mount = |source: &str, target: &str| format!("--mount=type=bind,source={source},target={target},readonly");
    vec![
        format!("--label={LABEL}"),
        mount(&offer.library, &library),
        mount(&directory, &format!("{INSIDE}/shim")),
        format!("--env=LD_PRELOAD={library}"),
        format!("--env={SOCKET_VARIABLE}={INSIDE}/shim/{name}"),
    ]
}
