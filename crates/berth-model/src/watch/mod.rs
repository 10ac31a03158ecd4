//! What berth makes of figures over time: what goes wrong, what comes back, and what comes next.
//!
//! [`series`] are the figures as they are kept. Each detector takes one figure of one tenant, value by value, in constant time and
//! memory, learns what is usual, and has a [`Finding`] for as long as something is not: [`Degradation`], [`SloRisk`], [`Drift`],
//! [`Starvation`], [`StuckHold`], [`PredictorError`], [`Kept`], [`NotAttached`]. [`Forecaster`] says what a figure will be, and how wrong it was so far.
//! [`feedback`] is what people say. Pure: values come in with their instants; what follows from a finding is decided elsewhere.
//!
//! How well they do is measured on drawn scenarios by `berth bench watch`; their constants were chosen there.

mod baseline;
mod cusum;
mod degradation;
mod drift;
pub mod feedback;
mod finding;
mod forecast;
mod kept;
mod not_attached;
mod predictor;
mod season;
pub mod series;
mod slo_risk;
mod starvation;
mod stuck;
mod usual;

pub use degradation::Degradation;
pub use drift::Drift;
pub use finding::{Finding, Kind, SeriesTotals, WatchTotals};
pub use forecast::{Forecast, Forecaster, Skill};
pub use kept::Kept;
pub use not_attached::NotAttached;
pub use predictor::PredictorError;
pub use slo_risk::{Foreseen, SloRisk};
pub use starvation::{Starvation, Want};
pub use stuck::StuckHold;
