//! What the agent asks of the API server: bounded in time, so that a connection that leads nowhere delays nothing for long; and complained
//! of once, however often it fails.

use std::time::Duration;

/// For one answer. Far more than a server takes that is well.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the API server has not answered within {} s", ANSWER_WITHIN.as_secs())]
    Late,
    /// In its own words, without the whole of the answer, which the client's words repeat.
    #[error("the API server refuses: {message}")]
    Refused { message: String },
    #[error("the API server cannot be asked")]
    Failed {
        #[source]
        source: Box<kube::Error>,
    },
}

/// The answer, if it comes in time.
pub async fn answered<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match tokio::time::timeout(ANSWER_WITHIN, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(CallError::Refused { message: status.message.clone() }),
        Ok(Err(source)) => Err(CallError::Failed { source: Box::new(source) }),
        Err(_) => Err(CallError::Late),
    }
}

/// What was complained of last.
#[derive(Debug, Default)]
pub struct Complaint(Option<String>);

impl Complaint {
    /// Whether this is to be told: it is not what was told last.
    pub fn is_new(&mut self, error: &dyn std::error::Error) -> bool {
        let words = in_full(error);
        if self.0.as_ref() == Some(&words) {
            return false;
        }
        self.0 = Some(words);
        true
    }

    /// All is well. Whether that is to be told: it was not.
    pub fn is_over(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// With what it comes from, as far as that says more.
pub fn in_full(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        source = cause.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_is_waited_for_a_while() {
        let never = answered(std::future::pending::<kube::Result<()>>()).await;
        assert!(matches!(never, Err(CallError::Late)), "{never:?}");
    }

    #[test]
    fn a_complaint_is_told_when_it_changes_and_when_it_is_over() {
        let (mut complaint, refused) =
            (Complaint::default(), |message: &str| CallError::Refused { message: message.into() });
        assert!(!complaint.is_over());
        assert!(complaint.is_new(&refused("forbidden")));
        assert!(!complaint.is_new(&refused("forbidden")));
        assert!(complaint.is_new(&refused("too long")));
        assert!(complaint.is_over() && !complaint.is_over());
        assert!(complaint.is_new(&refused("too long")), "it has been well meanwhile");
    }
}
