//! `berth sim fault`: makes a simulated GPU misbehave. Every fault stays until the server is started anew.

use std::path::PathBuf;

use anyhow::Result;
use berth_sim::server::inject;
use berth_sim::{Fault, NvmlArea};
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;

use crate::out::Stdout;

const EXAMPLES: &str = "\
Examples:
  berth sim fault --dir /tmp/sim gpu-lost 0
  berth sim fault --dir /tmp/sim nvml process-list 999
  berth sim fault --dir /tmp/sim no-permission
  berth sim fault --dir /tmp/sim kernel-fault 4242

A fault stays until the simulator is started anew.";

/// Make a simulated GPU misbehave
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The directory the simulator serves
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    #[command(subcommand)]
    fault: Kind,
}

#[derive(Debug, Clone, Copy, clap::Subcommand)]
enum Kind {
    /// The GPU falls off the bus
    #[command(after_help = "Examples:\n  berth sim fault --dir /tmp/sim gpu-lost 0")]
    GpuLost {
        /// Index of the GPU
        gpu: u32,
    },
    /// One part of NVML answers with an error
    #[command(after_help = "Examples:\n  berth sim fault --dir /tmp/sim nvml memory 15")]
    Nvml {
        /// Which part
        #[arg(value_parser = areas())]
        area: NvmlArea,
        /// The code every call of it returns, as in nvml.h
        code: u32,
    },
    /// NVML shows processes but not what they use
    #[command(after_help = "Examples:\n  berth sim fault --dir /tmp/sim no-permission")]
    NoPermission,
    /// The kernel of a process fails, and its contexts with it
    #[command(after_help = "Examples:\n  berth sim fault --dir /tmp/sim kernel-fault 4242")]
    KernelFault {
        /// Host process id
        pid: u32,
    },
}

pub fn run(args: &Args) -> Result<()> {
    let fault = match args.fault {
        Kind::GpuLost { gpu } => Fault::GpuLost { gpu },
        Kind::Nvml { area, code } => Fault::Nvml { area, code },
        Kind::NoPermission => Fault::NoPermission,
        Kind::KernelFault { pid } => Fault::KernelFault { pid },
    };
    inject(&args.dir, fault)?;
    Stdout::line("done")
}

fn areas() -> impl TypedValueParser<Value = NvmlArea> {
    PossibleValuesParser::new(NvmlArea::ALL.map(NvmlArea::name))
        .map(|name| NvmlArea::from_name(&name).expect("only names of areas are accepted"))
}
