//! How fairly a GPU was shared, over one window.
//!
//! *Finish-time fairness* of a tenant: the time its work took over what it would have taken with an equal part of the GPU to itself, 1/n of its
//! speed. Above 1 it paid for others. *Progress* of a tenant: the GPU time it got, as if alone, over its fair part of the window: an equal one, where
//! nobody has more than it asked for and what one leaves goes to the others. Jain's index of progress is 1 if all got the same part of what was
//! theirs, 1/n if one got everything.

use berth_policy::kernels::hybrid::jain;
use berth_policy::kernels::squad::shares;
use berth_sim::scenario::kernels::{Account, Report};
use serde::Serialize;

use super::world::Tenant;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fairness {
    /// Jain's index of progress.
    pub jain: f64,
    /// The worst finish-time fairness of a tenant.
    pub worst_finish: f64,
}

impl Fairness {
    /// Over the window from the beginning of a run to its end.
    pub fn of(tenants: &[Tenant], report: &Report) -> Fairness {
        let window = report.ended_ns.max(1) as f64;
        let wants: Vec<f64> = tenants.iter().map(|tenant| wanted(tenant, report) / window).collect();
        let fair = shares(&wants, &vec![1.0; wants.len()]);
        let each = || tenants.iter().zip(&report.programs);
        let progress = each().zip(&fair).map(|((_, account), fair)| account.served_ns as f64 / window / fair.max(1e-9));
        let finish = each().filter_map(|(tenant, account)| finish(tenant, account, tenants.len(), report.ended_ns));
        Fairness { jain: jain(progress).unwrap_or(0.0), worst_finish: finish.fold(0.0, f64::max) }
    }
}

/// GPU time it asked for until the end, as if alone.
fn wanted(tenant: &Tenant, report: &Report) -> f64 {
    let came = tenant.program.requests.iter().filter(|request| request.at_ns < report.ended_ns);
    let could = |at: u64, alone: u64| (alone as f64).min((report.ended_ns - at) as f64);
    came.map(|request| could(request.at_ns, request.alone_ns())).sum::<f64>().max(1.0)
}

/// `None` of one that asked for nothing.
fn finish(tenant: &Tenant, account: &Account, tenants: usize, ended_ns: u64) -> Option<f64> {
    let alone = |request: usize| tenant.program.requests[request].alone_ns() as f64;
    let done: (f64, f64) = account.finished.iter().fold((0.0, 0.0), |(took, fair), done| {
        (took + (done.done_ns - done.came_ns) as f64, fair + alone(done.request))
    });
    // What is under way has taken until now, for what of it is done.
    let under_way = tenant.program.requests.get(account.finished.len()).filter(|request| request.at_ns < ended_ns);
    let began = account.finished.last().map_or(0, |done| done.done_ns);
    let had = account.served_ns as f64 - done.1;
    let (took, fair) = under_way
        .map_or(done, |request| (done.0 + (ended_ns - request.at_ns.max(began)) as f64, done.1 + had.max(0.0)));
    (took > 0.0).then(|| took / (fair.max(1e3) * tenants as f64))
}
