//! Nodes asked over TCP, with questions and answers signed by their own keys.

use std::time::Duration;

use berth_model::cluster::{Past, Report};

use super::{AskNodes, Asked, Question};
use crate::frame::{ClusterKey, Told};
use crate::node;

/// A node that takes longer is as good as silent; whoever asks may have less patience.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Signed {
    key: ClusterKey,
}

impl Signed {
    pub fn new(key: ClusterKey) -> Self {
        Self { key }
    }
}

impl AskNodes for Signed {
    fn report<'a>(&'a self, question: &'a Question) -> Asked<'a, Told<Report>> {
        let key = self.key.node(&question.node);
        Box::pin(async move {
            let asked = node::ask(question.address, &question.node, &key, ANSWER_WITHIN).await;
            asked.map_err(|error| chain(&error))
        })
    }

    fn pasts<'a>(&'a self, question: &'a Question) -> Asked<'a, Vec<Past>> {
        let key = self.key.node(&question.node);
        Box::pin(async move {
            let asked = node::ask_pasts(question.address, &question.node, &key, ANSWER_WITHIN).await;
            asked.map_err(|error| chain(&error))
        })
    }
}

/// With what it comes from.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
