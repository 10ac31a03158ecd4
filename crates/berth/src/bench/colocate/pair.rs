//! Which programs share the GPU: built-in ones that need nothing but a driver, and PyTorch's where it is installed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use berth_load::roles::Calibration;
use serde::{Serialize, Serializer};

use super::program::Invocation;

/// One whose latency counts, and one whose rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pair {
    /// `berth load serve` and a trainer of many short kernels.
    Short,
    /// The same server beside kernels of 20 ms.
    Long,
    /// ResNet-50, a batch of 4 as a graph, beside its training with batches of 64.
    TorchResnet,
    /// BERT-base, a batch of 4 as a graph, beside GPT-2's training with 8 × 512 tokens.
    TorchBert,
    /// ResNet-50 as above, beside matrix products of 20 ms.
    TorchLong,
}

/// What is asked of a pair: at most so much more latency, with at least that part of the trainer's rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Asked {
    pub p99_over_alone: f64,
    pub trainer_over_alone: f64,
}

/// How much the server has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// 50 requests a second
    Light,
    /// 200, for which the goals are
    Medium,
    /// 400
    Heavy,
}

/// Where programs are found.
#[derive(Debug, Clone)]
pub struct Programs {
    pub berth: PathBuf,
    /// The directory of the PyTorch programs.
    pub torch: Option<PathBuf>,
}

/// Found when a built-in program was first started; every later one does the same work.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    pub server: Option<Calibration>,
    pub trainer: Option<Calibration>,
}

impl Pair {
    pub const ALL: [Pair; 5] = [Self::Short, Self::Long, Self::TorchResnet, Self::TorchBert, Self::TorchLong];

    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
            Self::TorchResnet => "torch-resnet",
            Self::TorchBert => "torch-bert-gpt2",
            Self::TorchLong => "torch-long",
        }
    }

    pub fn what(self) -> &'static str {
        match self {
            Self::Short => "requests of 60 kernels of 20 µs + steps of 300 kernels of 10 to 400 µs",
            Self::Long => "requests of 60 kernels of 20 µs + kernels of 20 ms",
            Self::TorchResnet => "ResNet-50 inference (4) + ResNet-50 training (64)",
            Self::TorchBert => "BERT-base inference (4) + GPT-2 training (8 × 512)",
            Self::TorchLong => "ResNet-50 inference (4) + matrix products of 20 ms",
        }
    }

    pub fn is_torch(self) -> bool {
        matches!(self, Self::TorchResnet | Self::TorchBert | Self::TorchLong)
    }

    /// At [`Load::Medium`].
    pub fn asked(self) -> Asked {
        let (p99_over_alone, trainer_over_alone) = match self {
            Self::Short | Self::TorchResnet => (1.10, 0.70),
            Self::TorchBert => (1.15, 0.66),
            Self::Long | Self::TorchLong => (1.5, 0.55),
        };
        Asked { p99_over_alone, trainer_over_alone }
    }

    /// `None` where PyTorch's programs are not there.
    pub fn server(self, programs: &Programs, known: Known) -> Option<Invocation> {
        match self {
            Self::Short | Self::Long => Some(built_in(programs, &["load", "serve"], known.server)),
            Self::TorchResnet | Self::TorchLong => torch(programs, "serve.py", &["resnet50"]),
            Self::TorchBert => torch(programs, "serve.py", &["bert", "--precision", "high"]),
        }
    }

    /// `None` as above.
    pub fn trainer(self, programs: &Programs, known: Known) -> Option<Invocation> {
        match self {
            Self::Short => Some(built_in(programs, &["load", "train"], known.trainer)),
            Self::Long => Some(built_in(programs, &["load", "train", "--kernel-ms", "20"], known.trainer)),
            Self::TorchResnet => torch(programs, "train.py", &["resnet50"]),
            Self::TorchBert => torch(programs, "train.py", &["gpt2", "--precision", "high"]),
            Self::TorchLong => torch(programs, "train.py", &["matmul"]),
        }
    }
}

fn built_in(programs: &Programs, args: &[&str], known: Option<Calibration>) -> Invocation {
    let mut args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    if let Some(Calibration { blocks, rounds_per_us }) = known {
        args.extend(["--blocks".to_owned(), blocks.to_string()]);
        args.extend(["--rounds-per-us".to_owned(), rounds_per_us.to_string()]);
    }
    Invocation { program: programs.berth.clone(), args }
}

fn torch(programs: &Programs, script: &str, args: &[&str]) -> Option<Invocation> {
    let script = programs.torch.as_ref()?.join(script).display().to_string();
    let args = [script].into_iter().chain(args.iter().map(|arg| (*arg).to_owned())).collect();
    Some(Invocation { program: "python3".into(), args })
}

/// Whether PyTorch and its models are there and find a GPU; otherwise what Python says.
pub fn probe_torch(dir: &Path) -> Result<(), String> {
    if !dir.join("serve.py").is_file() {
        return Err(format!("no serve.py in {}", dir.display()));
    }
    let ask = "import torch, torchvision, transformers; torch.cuda.init()";
    let asked = Command::new("python3").args(["-c", ask]).stdin(Stdio::null()).stdout(Stdio::null()).output();
    match asked {
        Ok(answer) if answer.status.success() => Ok(()),
        Ok(answer) => {
            let said = String::from_utf8_lossy(&answer.stderr);
            Err(said.lines().last().unwrap_or("python3 failed").to_owned())
        }
        Err(error) => Err(format!("running python3: {error}")),
    }
}

impl Load {
    pub const ALL: [Load; 3] = [Self::Light, Self::Medium, Self::Heavy];

    /// Requests a second.
    pub fn rate(self) -> u32 {
        match self {
            Self::Light => 50,
            Self::Medium => 200,
            Self::Heavy => 400,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.rate())
    }
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<&str> = Self::ALL.iter().map(|pair| pair.name()).collect();
        let found = Self::ALL.into_iter().find(|pair| pair.name() == text);
        found.ok_or_else(|| format!("`{text}` is none of {}", names.join(", ")))
    }
}

impl Serialize for Pair {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_asked_for_by_the_name_it_is_shown_by() {
        for pair in Pair::ALL {
            assert_eq!(pair.name().parse(), Ok(pair));
        }
    }

    #[test]
    fn a_built_in_program_does_the_work_an_earlier_one_measured() {
        let programs = Programs { berth: "/b".into(), torch: None };
        let known = Known { trainer: Some(Calibration { blocks: 264, rounds_per_us: 41.5 }), server: None };
        let trainer = Pair::Long.trainer(&programs, known).unwrap();
        let expected = ["load", "train", "--kernel-ms", "20", "--blocks", "264", "--rounds-per-us", "41.5"];
        assert_eq!(trainer.args, expected);
        assert_eq!(Pair::Long.server(&programs, known).unwrap().args, ["load", "serve"]);
        assert_eq!(Pair::TorchBert.server(&programs, known), None);
    }
}
