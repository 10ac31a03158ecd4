//! monitor (being written)
#[derive(Debug, Default)]
pub struct Monitor;
