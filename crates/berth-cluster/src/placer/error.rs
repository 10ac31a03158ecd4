//! Why nothing was placed.

use berth_model::cluster::api::PlaceAnswer;

use super::constraint::InvalidConstraint;

#[derive(Debug, thiserror::Error)]
pub enum NotPlaced {
    #[error(transparent)]
    Constraint(#[from] InvalidConstraint),
    /// Counts and reasons are in the answer.
    #[error("no node takes it")]
    Nobody(Box<PlaceAnswer>),
    #[error("this placer does not place now: {because}")]
    NotActing { because: String },
}
