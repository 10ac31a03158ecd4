//! A node's side of the cluster: its key, the questions its daemon answers over TCP, and how they are asked.
//!
//! ```text
//! GET /v1/report                  GET /v1/pasts
//! berth-nonce: 32 hexadecimal digits, drawn anew for each question
//! berth-signature: 64 of them, HMAC-SHA256 by the node's key ([`crate::frame::NodeKey::sign_ask`])
//! ```
//!
//! Who asks without the node's key learns nothing; the answer is a frame that signs the nonce, so that whoever asked knows it is fresh.
//! What is told is not encrypted: it names no tenant, and who can read the network reads how busy a node is.

mod ask;
pub mod key_file;
mod serve;
#[cfg(test)]
mod tests;

pub use ask::{AskError, ask, ask_pasts};
pub use serve::{BindError, Counters, Facts, Listener, PastsReply, Totals};

use crate::frame::Kind;

const NONCE: &str = "berth-nonce";
const SIGNATURE: &str = "berth-signature";

const PATHS: [(&str, Kind); 2] = [("/v1/report", Kind::Report), ("/v1/pasts", Kind::Pasts)];

fn path(kind: Kind) -> &'static str {
    PATHS.iter().find(|(_, one)| *one == kind).map_or("/", |(path, _)| *path)
}
