//! Why the kernel's process events cannot be had, each with what to do about it.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ConnectorError {
    #[error("this kernel has no proc connector (CONFIG_PROC_EVENTS): {source}")]
    NoConnector { source: io::Error },
    #[error("listening to process events is not permitted: run berth as root or with CAP_NET_ADMIN")]
    NoPermission,
    #[error(
        "process events are told in the host's network namespace only: run berth there (with Docker: --network host)"
    )]
    OtherNetwork,
    #[error(
        "the kernel does not answer: process events are told in the host's pid and user namespaces only (with Docker: --pid host)"
    )]
    NoAnswer,
    #[error("cannot {attempt} for process events: {source}")]
    Io { attempt: &'static str, source: io::Error },
    #[error("the kernel refuses to tell process events: {source}")]
    Refused { source: io::Error },
}

impl ConnectorError {
    pub(super) fn io(attempt: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        move |errno| match errno {
            Errno::PERM | Errno::ACCESS => Self::NoPermission,
            Errno::PROTONOSUPPORT => Self::NoConnector { source: errno.into() },
            // The kernel's end of the connector is in the first network namespace.
            Errno::CONNREFUSED => Self::OtherNetwork,
            _ => Self::Io { attempt, source: errno.into() },
        }
    }
}
