//! The published tables and figures that are made again, and a few of our own.
//!
//! A figure is a choice of cells and of what to show of them; cells that several figures share are measured once.

use serde::Serialize;

use super::cell::Case;
use super::workload::Workload;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Contention paper, Table 1: input, kernel and output of 13,312² on 1 to 10 containers
    Table1,
    /// Contention paper, Fig. 2: the time of 13,312² on 1 to 10 containers
    Fig2,
    /// Contention paper, Fig. 3: the same against one after another
    Fig3,
    /// Contention paper, Fig. 4: each of ten containers
    Fig4,
    /// Contention paper, Fig. 7: 19,456² on 1 to 5 containers, managed
    Fig7,
    /// Contention paper, Fig. 8: 13,312² on 1 to 10 containers, managed
    Fig8,
    /// Contention paper, Fig. 9: 8,192² on 1 to 20 containers, managed
    Fig9,
    /// Node-list paper, Fig. 3: 8,192² on up to 20 containers
    Nodes3,
    /// Node-list paper, Fig. 4: light inference on 1 to 5 containers
    Nodes4,
    /// Sizes and counts that were measured on an H200
    Sizes,
    /// Training with pauses, mixed sizes, an idle notebook beside others
    Patterns,
    /// Sizes mixed, and long bursts beside short ones: what each tenant gets
    Mixes,
}

/// What a figure shows of its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// Phases of the unmanaged run.
    Phases,
    /// Time from the first input to the last output, unmanaged.
    Unmanaged,
    /// The same, with the kernels' owner after another as a line to compare.
    Baseline,
    /// Each tenant of the largest cell, unmanaged.
    Each,
    /// Every way.
    Ways,
    /// Every way, and what it makes of each tenant.
    Tenants,
}

impl Figure {
    pub const ALL: [Figure; 12] = [
        Figure::Table1,
        Figure::Fig2,
        Figure::Fig3,
        Figure::Fig4,
        Figure::Fig7,
        Figure::Fig8,
        Figure::Fig9,
        Figure::Nodes3,
        Figure::Nodes4,
        Figure::Sizes,
        Figure::Patterns,
        Figure::Mixes,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Figure::Table1 => "table1",
            Figure::Fig2 => "fig2",
            Figure::Fig3 => "fig3",
            Figure::Fig4 => "fig4",
            Figure::Fig7 => "fig7",
            Figure::Fig8 => "fig8",
            Figure::Fig9 => "fig9",
            Figure::Nodes3 => "nodes3",
            Figure::Nodes4 => "nodes4",
            Figure::Sizes => "sizes",
            Figure::Patterns => "patterns",
            Figure::Mixes => "mixes",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Figure::Table1 => "Phases of 13,312² products, unmanaged",
            Figure::Fig2 => "13,312² products together",
            Figure::Fig3 => "13,312² products together, against one after another",
            Figure::Fig4 => "Each of ten 13,312² products together",
            Figure::Fig7 => "19,456² products, managed",
            Figure::Fig8 => "13,312² products, managed",
            Figure::Fig9 => "8,192² products, managed",
            Figure::Nodes3 => "8,192² products together",
            Figure::Nodes4 => "Light inference",
            Figure::Sizes => "Products of several sizes",
            Figure::Patterns => "Training, mixed sizes, an idle notebook",
            Figure::Mixes => "Mixed sizes and bursts, tenant by tenant",
        }
    }

    pub fn shows(self) -> Shows {
        match self {
            Figure::Table1 => Shows::Phases,
            Figure::Fig2 | Figure::Nodes3 => Shows::Unmanaged,
            Figure::Fig3 => Shows::Baseline,
            Figure::Fig4 => Shows::Each,
            Figure::Fig7 | Figure::Fig8 | Figure::Fig9 | Figure::Nodes4 | Figure::Sizes | Figure::Patterns => {
                Shows::Ways
            }
            Figure::Mixes => Shows::Tenants,
        }
    }

    pub fn cases(self) -> Vec<Case> {
        let product = |n: u64, most: usize| up_to(Workload::Product(n), most);
        match self {
            Figure::Table1 | Figure::Fig2 | Figure::Fig3 | Figure::Fig8 => product(13_312, 10),
            Figure::Fig4 => vec![Case { workload: Workload::Product(13_312), tenants: 10 }],
            Figure::Fig7 => product(19_456, 5),
            Figure::Fig9 | Figure::Nodes3 => product(8_192, 20),
            Figure::Nodes4 => up_to(Workload::Light, 5),
            Figure::Sizes => [(13_312, 10), (19_456, 5), (8_192, 10), (8_192, 20), (5_120, 20)]
                .map(|(n, tenants)| Case { workload: Workload::Product(n), tenants })
                .to_vec(),
            Figure::Patterns => [(Workload::Training, 3), (Workload::Mixed, 8), (Workload::Notebook, 4)]
                .map(|(workload, tenants)| Case { workload, tenants })
                .to_vec(),
            Figure::Mixes => vec![
                Case { workload: Workload::Mixed, tenants: 8 },
                Case { workload: Workload::OneLarge, tenants: 10 },
                Case { workload: Workload::LargeFirst, tenants: 10 },
                Case { workload: Workload::Server, tenants: 2 },
                Case { workload: Workload::Server, tenants: 3 },
                Case { workload: Workload::Cells, tenants: 3 },
                Case { workload: Workload::LateJob, tenants: 2 },
            ],
        }
    }
}

fn up_to(workload: Workload, most: usize) -> Vec<Case> {
    (1..=most).map(|tenants| Case { workload, tenants }).collect()
}
