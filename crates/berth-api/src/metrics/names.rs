//! The names of all metrics and labels, with what they mean. Base units only: bytes, seconds, ratios from 0 to 1.
//!
//! Names of counters come without `_total`: the encoder adds it.

/// A metric: its name and its help text.
pub type Named = (&'static str, &'static str);

pub const BUILD_INFO: Named = ("berth_build_info", "Version of berth, always 1");
pub const SAMPLES: Named = ("berth_samples", "Looks at all GPUs since the daemon started");
pub const TASKS_STARTED: Named = ("berth_tasks_started", "Tasks that began since the daemon started");
pub const TASKS_ENDED: Named = ("berth_tasks_ended", "Tasks that ended since the daemon started");
pub const GPUS_LOST: Named = ("berth_gpus_lost", "Times a GPU stopped answering since the daemon started");
pub const SOURCE_UP: Named = ("berth_source_up", "Whether a source of events works; one switched off has no series");

pub const PROBE_HITS: Named = ("berth_probe_hits", "Driver calls told by probes; no probe metrics without probes");
pub const PROBE_LOST: Named = ("berth_probe_hits_lost", "Driver calls lost because more came than there was room for");
pub const PROBE_UNRESOLVED: Named =
    ("berth_probe_hits_unresolved", "Driver calls of processes that were gone before they could be identified");
pub const PROBE_WASTED: Named =
    ("berth_probe_hits_wasted", "Hits of probes that had told all they should and were not yet taken away");
pub const PROBE_LATE: Named =
    ("berth_probes_late", "Times a first allocation or launch may have passed before its probe was in place");

pub const REPORTS_SERVED: Named =
    ("berth_reports_served", "Reports told to whoever places containers; none where nobody may ask over the network");
pub const REPORTS_REFUSED: Named =
    ("berth_reports_refused", "Questions for a report that were not answered, by reason");

pub const GPU_INFO: Named = ("berth_gpu_info", "A GPU of this host, always 1");
pub const GPU_UP: Named = ("berth_gpu_up", "Whether the driver answers for the GPU");
pub const GPU_READABLE: Named = ("berth_gpu_processes_readable", "Whether the GPU's processes can be listed");
pub const GPU_TENANTS: Named = ("berth_gpu_tenants", "Tenants on the GPU");
pub const GPU_MEMORY_SIZE: Named = ("berth_gpu_memory_size_bytes", "Memory the GPU has");
pub const GPU_MEMORY_USED: Named = ("berth_gpu_memory_used_bytes", "Memory in use on the GPU, by whomever");
pub const GPU_CORE: Named = ("berth_gpu_core_ratio", "Share of time in which the GPU computed");

pub const TENANT_MEMORY: Named = ("berth_tenant_memory_bytes", "GPU memory the tenant holds");
pub const TENANT_CORE: Named = ("berth_tenant_core_ratio", "Share of the GPU's time the tenant used");
pub const TENANT_STATE: Named = ("berth_tenant_state", "What the tenant does, named by the label state; always 1");
pub const TENANT_HELD: Named = (
    "berth_tenant_held_seconds",
    "Time the tenant was kept off the GPUs in its present task; none where berth only watches",
);
pub const TASK_SECONDS: Named = ("berth_task_seconds", "How long the tenant's present task has been on the GPU");

pub const TENANT_DEADLINE: Named =
    ("berth_tenant_deadline_seconds", "How long a unit of the tenant's work may take; none without a deadline");
pub const TENANT_FLOAT: Named = (
    "berth_tenant_float_seconds",
    "Time left until the tenant's work under way is due, below zero if it is late; none while nothing is due",
);

pub const DEADLINE_UNITS: Named = (
    "berth_deadline_units",
    "Units of work that had a deadline and are over, since the daemon started; owners beyond a number are one without a name",
);
pub const DEADLINE_WARNINGS: Named =
    ("berth_deadline_warnings", "Units of work that were said to be late before they were, since the daemon started");
pub const DEADLINE_FLOAT: Named = (
    "berth_deadline_float_seconds",
    "Time that was left until units of work were due when they ended, below zero of those that were late",
);
pub const DEADLINE_RUN: Named =
    ("berth_deadline_run_seconds", "Time that units of work with a deadline took, from their start to their end");

pub const POLICY: Named = ("berth_policy", "Who decides about holds, named by the label policy; always 1");
pub const DRY_RUN: Named = ("berth_dry_run", "Whether the policy only says what it would do");
pub const QUEUE: Named = ("berth_queue_length", "Tenants that wait for their turn on a GPU");
pub const TENANTS_HELD: Named = ("berth_tenants_held", "Tenants that are kept off the GPUs now");
pub const HOLDS: Named = ("berth_holds", "Holds that came about since the daemon started");
pub const TENANTS_WOULD_BE_HELD: Named =
    ("berth_tenants_would_be_held", "Tenants that a dry run would keep off the GPUs now");
pub const WOULD_BE_HOLDS: Named =
    ("berth_would_be_holds", "Holds that the present dry run would have made, none of which was");
pub const HOLD_FAILURES: Named = ("berth_hold_failures", "Holds and releases that failed since the daemon started");

pub const KERNEL_LEADS_LOST: Named =
    ("berth_kernel_leads_lost", "Times a tenant kept others stopped for more than its share, since the daemon started");
pub const KERNEL_REFUSED: Named =
    ("berth_kernel_refused", "Processes that were not let take part at the level of kernels, since the daemon started");
pub const KERNEL_PLANS: Named = ("berth_kernel_plans", "Plans at the level of kernels since the daemon started");
pub const KERNEL_ROLE: Named =
    ("berth_kernel_role", "What a tenant is at the level of kernels, named by the label role; always 1");
pub const KERNEL_STOPPED: Named = ("berth_kernel_stopped", "Whether the tenant has work and waits for others' kernels");
pub const KERNEL_YIELDS_TO: Named = ("berth_kernel_yields_to", "Tenants it yields to");
pub const KERNEL_ATTAINMENT: Named =
    ("berth_kernel_attainment_ratio", "How well the tenant's goals were kept of late; none without a goal");
pub const KERNEL_REQUESTS: Named = ("berth_kernel_requests", "Requests of a tenant with a goal that have ended");
pub const KERNEL_REQUEST_TIME: Named = (
    "berth_kernel_request_seconds",
    "How long the latest requests of a tenant with a goal took, by the label quantile",
);
pub const KERNEL_CHOSEN: Named =
    ("berth_kernel_policy_chosen", "The policy that auto has in place on a GPU, named by the label policy; always 1");
pub const KERNEL_GOODPUT: Named = (
    "berth_kernel_goodput_ratio",
    "Work that counts, as GPU time alone, over the time in which somebody had work, in the latest window of a GPU",
);
pub const KERNEL_GOALS_KEPT: Named =
    ("berth_kernel_goals_kept_ratio", "Goals that were kept in the latest window of a GPU; none without a goal");
pub const KERNEL_FAIRNESS: Named =
    ("berth_kernel_fairness_ratio", "Jain's index of how fast tenants got on in the latest window of a GPU");
pub const KERNEL_SLOWDOWN: Named =
    ("berth_kernel_slowdown_ratio", "How much longer work took than alone in the latest window of a GPU");
pub const KERNEL_WORST_FINISH: Named = (
    "berth_kernel_worst_finish_ratio",
    "Time the work of whoever came off worst took, over that with an equal part, in the latest window of a GPU",
);
pub const KERNEL_TIME: Named = ("berth_kernel_time_seconds", "Time a usual kernel of the tenant takes");
pub const KERNEL_ERROR: Named = (
    "berth_kernel_prediction_error_ratio",
    "Mean distance of estimated from measured times of kernels, as a part of the latter",
);
pub const KERNEL_SMS: Named =
    ("berth_kernel_sm_share_ratio", "Part of the GPU's SMs that a usual kernel of the tenant can use");
pub const KERNEL_BANDWIDTH: Named = (
    "berth_kernel_bandwidth_share_ratio",
    "Part of the memory's bandwidth the tenant uses while it runs; none where the GPU does not count it",
);
pub const KERNEL_LAUNCHES: Named =
    ("berth_kernel_launches", "Kernels, graphs and copies the tenant's processes submitted");
pub const KERNEL_STOPS: Named = ("berth_kernel_stops", "Waits for others that were put into the tenant's streams");
pub const KERNEL_STOPS_GIVEN_UP: Named =
    ("berth_kernel_stops_given_up", "Stops that lasted too long, and were not obeyed any more");
pub const KERNEL_SERVED: Named = (
    "berth_kernel_served_seconds",
    "Time in which the tenant had work and might run, its part where others ran beside it",
);

pub const FINDINGS: Named = ("berth_findings", "What is not as it should be now, by kind; tenants are not named");
pub const FOUND: Named = ("berth_found", "Findings that began since the daemon started, by kind");
pub const SERIES_WRITTEN: Named =
    ("berth_series_values_written", "Figures written down since the daemon started; none where none are");
pub const SERIES_LOST: Named = ("berth_series_values_lost", "Figures that could not be written down, or came too fast");
pub const SERIES_BYTES: Named = ("berth_series_bytes", "Room that figures over time take on disk");

pub const PROCESS_CPU: Named = ("berth_process_cpu_seconds", "CPU time the daemon itself has used");
pub const PROCESS_RESIDENT: Named = ("berth_process_resident_memory_bytes", "Memory the daemon itself holds");

/// Label keys.
pub mod label {
    pub const VERSION: &str = "version";
    pub const SOURCE: &str = "source";
    pub const GPU: &str = "gpu";
    pub const UUID: &str = "uuid";
    pub const NAME: &str = "name";
    pub const TENANT: &str = "tenant";
    pub const CONTAINER: &str = "container";
    pub const OWNER: &str = "owner";
    pub const STATE: &str = "state";
    pub const POLICY: &str = "policy";
    pub const MEANS: &str = "means";
    pub const UNIT: &str = "unit";
    pub const VERDICT: &str = "verdict";
    pub const REASON: &str = "reason";
    pub const KIND: &str = "kind";
    pub const ROLE: &str = "role";
    pub const QUANTILE: &str = "quantile";
}
