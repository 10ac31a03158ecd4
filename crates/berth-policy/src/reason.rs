//! Why a policy decided as it did, in words a person understands.

use std::fmt;
use std::time::Duration;

use berth_model::{Bytes, GpuIndex, Percent};
use serde::{Deserialize, Serialize};

/// Names are those people use; they are for reading only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Reason {
    /// Someone else computes there.
    OtherComputes { gpu: GpuIndex, who: String },
    /// Someone else goes first there, and will compute soon.
    OtherIsFirst { gpu: GpuIndex, who: String },
    /// Its turn has come.
    ItsTurn,
    /// The one before it is done with the GPU.
    OtherIsDone { who: String },
    /// It had the GPU for its quantum, or for as much as one that wants it less, and others wait.
    QuantumOver { after: Duration },
    /// It has waited as long as anyone may.
    WaitedLongest { waited: Duration },
    /// Its gang moves together.
    WithItsGang { gang: String },
    /// So many others make their contexts, and all of them would wait for each other.
    OthersOpen { count: u32 },
    /// What it wants does not fit into the memory that is left.
    MemoryFull { gpu: GpuIndex, wanted: Option<Bytes>, free: Option<Bytes> },
    /// It wants more than the GPU has; it is let through to be told so by the driver.
    NeverFits { gpu: GpuIndex, wanted: Bytes, total: Bytes },
    /// Nobody will give back the memory it waits for; it is let through, to fail.
    NobodyYields { gpu: GpuIndex, wanted: Bytes, waited: Duration },
    /// Its memory is moved to the host to make room for another.
    MakesRoom { gpu: GpuIndex, who: String },
    /// There is room for it now.
    MemoryFits { gpu: GpuIndex },
    /// The GPU's cores are busy.
    CoreBusy { gpu: GpuIndex, core: Percent },
    /// The GPU's cores have room.
    CoreFree { gpu: GpuIndex, core: Percent },
    /// It computes briefly beside one that computes for long: waiting for that would cost it more than both lose.
    BriefBeside { who: String },
    /// Of those that want the GPU its deadline is due first.
    DueFirst { due_in: Duration },
    /// Another one's deadline is due before its own, or it has none.
    DueBefore { who: String, due_in: Duration },
    /// Whatever is done it will be late, so those go first that need not be.
    CannotMeet { who: String },
    /// It would be in time by itself, but not all can be, and one that takes less goes first.
    NotAllInTime { who: String },
    /// It has no deadline, and those that have none get their share now.
    ShareDue,
    /// It has a deadline, and one that has none gets the share of those now.
    OthersShare { who: String },
    /// Nobody contends with it, so holding it cannot pay.
    NoContention,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::OtherComputes { gpu, who } => write!(f, "`{who}` computes on GPU {gpu}"),
            Reason::OtherIsFirst { gpu, who } => write!(f, "`{who}` is first in line for GPU {gpu}"),
            Reason::ItsTurn => f.write_str("it is its turn"),
            Reason::OtherIsDone { who } => write!(f, "`{who}` is done with the GPU"),
            Reason::QuantumOver { after } => {
                write!(f, "it has had the GPU for {:.1} s, and others wait", after.as_secs_f64())
            }
            Reason::WaitedLongest { waited } => {
                write!(f, "it waited {:.1} s, the most anyone waits", waited.as_secs_f64())
            }
            Reason::WithItsGang { gang } => write!(f, "the tenants of `{gang}` move together"),
            Reason::OthersOpen { count } => {
                write!(f, "{count} others make their contexts, which goes no faster if more do at once")
            }
            Reason::MemoryFull { gpu, wanted: Some(wanted), free: Some(free) } => {
                write!(f, "it wants {wanted} and GPU {gpu} has {free} left")
            }
            Reason::MemoryFull { gpu, .. } => write!(f, "the memory of GPU {gpu} is full"),
            Reason::NeverFits { gpu, wanted, total } => {
                write!(f, "it wants {wanted} and GPU {gpu} has {total} in all: let through to fail")
            }
            Reason::NobodyYields { gpu, wanted, waited } => write!(
                f,
                "it waited {:.1} s for {wanted} that nobody on GPU {gpu} gives back: let through to fail",
                waited.as_secs_f64()
            ),
            Reason::MakesRoom { gpu, who } => write!(f, "it makes room for `{who}` on GPU {gpu}"),
            Reason::MemoryFits { gpu } => write!(f, "GPU {gpu} has room for it now"),
            Reason::CoreBusy { gpu, core } => write!(f, "GPU {gpu} is {core} busy"),
            Reason::CoreFree { gpu, core } => write!(f, "GPU {gpu} is only {core} busy"),
            Reason::BriefBeside { who } => write!(f, "it computes only briefly beside `{who}`"),
            Reason::DueFirst { due_in } => {
                write!(f, "its deadline is due first, in {:.1} s", due_in.as_secs_f64())
            }
            Reason::DueBefore { who, due_in } => {
                write!(f, "`{who}` is due before it, in {:.1} s", due_in.as_secs_f64())
            }
            Reason::CannotMeet { who } => {
                write!(f, "it cannot meet its deadline any more; those that can go first, now `{who}`")
            }
            Reason::NotAllInTime { who } => {
                write!(f, "not all can meet their deadlines; those that take less go first, now `{who}`")
            }
            Reason::ShareDue => f.write_str("those without a deadline get their share now"),
            Reason::OthersShare { who } => {
                write!(f, "those without a deadline get their share now, first `{who}`")
            }
            Reason::NoContention => f.write_str("nobody contends with it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_read_as_a_sentence_about_the_tenant() {
        let (gpu, who) = (GpuIndex(0), "train-7".to_owned());
        let wanted = Bytes::from_mib(30 << 10);
        let told = [
            Reason::OtherComputes { gpu, who: who.clone() },
            Reason::OtherIsFirst { gpu, who: who.clone() },
            Reason::QuantumOver { after: Duration::from_millis(10_020) },
            Reason::MemoryFull { gpu, wanted: Some(wanted), free: Some(Bytes::from_mib(2 << 10)) },
            Reason::MemoryFull { gpu, wanted: None, free: None },
            Reason::NeverFits { gpu, wanted, total: Bytes::from_mib(24 << 10) },
            Reason::MakesRoom { gpu, who: who.clone() },
            Reason::BriefBeside { who: who.clone() },
            Reason::DueFirst { due_in: Duration::from_millis(2_960) },
            Reason::DueBefore { who: who.clone(), due_in: Duration::from_secs(3) },
            Reason::CannotMeet { who: who.clone() },
            Reason::NotAllInTime { who: who.clone() },
            Reason::ShareDue,
            Reason::OthersShare { who },
        ];
        assert_eq!(
            told.map(|reason| reason.to_string()),
            [
                "`train-7` computes on GPU 0",
                "`train-7` is first in line for GPU 0",
                "it has had the GPU for 10.0 s, and others wait",
                "it wants 30.0 GiB and GPU 0 has 2.0 GiB left",
                "the memory of GPU 0 is full",
                "it wants 30.0 GiB and GPU 0 has 24.0 GiB in all: let through to fail",
                "it makes room for `train-7` on GPU 0",
                "it computes only briefly beside `train-7`",
                "its deadline is due first, in 3.0 s",
                "`train-7` is due before it, in 3.0 s",
                "it cannot meet its deadline any more; those that can go first, now `train-7`",
                "not all can meet their deadlines; those that take less go first, now `train-7`",
                "those without a deadline get their share now",
                "those without a deadline get their share now, first `train-7`",
            ]
        );
    }
}
