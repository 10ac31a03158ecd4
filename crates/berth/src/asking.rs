//! Asking the daemon to do something, and what it means for the exit code if it does not.

use anyhow::Result;
use berth_api::{Client, ClientError, PlacerClient};
use berth_model::Settings;

use crate::live;

/// What commands that ask for something promise.
pub const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed, or there is no daemon; 2 wrong command line or settings;
4 not allowed: neither root nor the owner, or the socket may not be opened;
5 no such tenant, or several may be meant.";

const NOT_ALLOWED: u8 = 4;
const NO_SUCH_TENANT: u8 = 5;
const FAILED: u8 = 1;

/// The daemon did not do it.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("{message}")]
    Refused { code: String, message: String },
    #[error("only a daemon can do that: start one (`berth daemon`), or name its socket (--socket)")]
    NoDaemon(#[source] ClientError),
    #[error("this user may not ask the daemon: its socket is for its owner and group (api.socket_group)")]
    NotAllowed(#[source] ClientError),
    #[error(
        "no placer answers: start one beside the engine's manager (`berth cluster serve`), or name its socket (placer.socket)"
    )]
    NoPlacer(#[source] ClientError),
    #[error("this user may not ask the placer: its socket (placer.socket) is for its owner and group")]
    NotAllowedByPlacer(#[source] ClientError),
    #[error(transparent)]
    Failed(ClientError),
}

impl AskError {
    pub fn exit_code(&self) -> u8 {
        match self {
            AskError::NotAllowed(_) | AskError::NotAllowedByPlacer(_) => NOT_ALLOWED,
            AskError::Refused { code, .. } => match code.as_str() {
                "forbidden" => NOT_ALLOWED,
                "no_such_tenant" | "ambiguous_tenant" => NO_SUCH_TENANT,
                _ => FAILED,
            },
            AskError::NoDaemon(_) | AskError::NoPlacer(_) | AskError::Failed(_) => FAILED,
        }
    }

    /// Nobody of that name is there.
    pub fn is_nobody(&self) -> bool {
        matches!(self, AskError::Refused { code, .. } if code == "no_such_tenant")
    }

    pub fn is_absent(&self) -> bool {
        matches!(self, AskError::NoDaemon(_))
    }
}

impl From<ClientError> for AskError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { code, message, .. } => AskError::Refused { code, message },
            error if error.is_absent() => AskError::NoDaemon(error),
            error if error.is_denied() => AskError::NotAllowed(error),
            error => AskError::Failed(error),
        }
    }
}

/// Asks the placer of these settings. The outer error is our own failure.
pub fn ask_placer<T, F>(settings: &Settings, question: impl FnOnce(PlacerClient) -> F) -> Result<Result<T, AskError>>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let of_placer = |error: ClientError| match AskError::from(error) {
        AskError::NoDaemon(error) => AskError::NoPlacer(error),
        AskError::NotAllowed(error) => AskError::NotAllowedByPlacer(error),
        error => error,
    };
    let client = PlacerClient::new(&settings.placer.socket);
    Ok(live::runtime()?.block_on(question(client)).map_err(of_placer))
}

/// Asks the daemon of these settings. The outer error is our own failure.
pub fn ask<T, F>(settings: &Settings, question: impl FnOnce(Client) -> F) -> Result<Result<T, AskError>>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let client = Client::new(&settings.api.socket);
    Ok(live::runtime()?.block_on(question(client)).map_err(AskError::from))
}
