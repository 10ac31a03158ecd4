//! What the settings say about holding: who decides, by which numbers, and what may be done.

use berth_model::Settings;
use berth_model::hold::Leaves;
use berth_model::settings::{EdfSettings, FifoSettings, Hold, Monitor, PaperSettings, PolicyName};
use berth_policy::Policy;
use berth_policy::edf::Edf;
use berth_policy::fifo::Fifo;
use berth_policy::paper::Paper;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Rules {
    pub hold: Hold,
    pub fifo: FifoSettings,
    pub edf: EdfSettings,
    pub paper: PaperSettings,
    pub monitor: Monitor,
    /// Containers are described by Kubernetes, which pauses none.
    pub describes_pods: bool,
}

impl Rules {
    pub fn of(settings: &Settings) -> Self {
        let Settings { hold, fifo, edf, paper, monitor, kubernetes, .. } = settings.clone();
        Self { hold, fifo, edf, paper, monitor, describes_pods: kubernetes.enabled }
    }

    /// For how long tenants are left alone that somebody wants to run.
    pub fn leaves(&self) -> Leaves {
        Leaves { grace: self.hold.grace.get(), owners_exempt: self.hold.owners_exempt }
    }

    /// One that knows nothing yet; `None` for the one that holds nobody.
    pub fn policy(&self, name: PolicyName) -> Option<Box<dyn Policy>> {
        match name {
            PolicyName::Off => None,
            PolicyName::Fifo => Some(Box::new(Fifo::new(self.fifo.clone()))),
            PolicyName::Edf => Some(Box::new(Edf::new(self.fifo.clone(), self.edf.clone()))),
            PolicyName::Paper => Some(Box::new(Paper::new(self.paper.clone()))),
        }
    }
}
