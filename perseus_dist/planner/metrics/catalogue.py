"""Every metric of the planner: its name, type, labels and meaning. ``docs/metrics.md`` shows this table.

Series of a job carry the label ``perseus_job``, the job's name. It is not ``job``, which Prometheus gives to all that
it scrapes, and not ``job_id``, which exporters of batch systems use for numbers of their own; so it can be joined on
without a rename. What else is known of a job stands once, in ``perseus_job_info``: a label that changes ends no other
series.
"""

from dataclasses import dataclass
from enum import StrEnum

JOB = "perseus_job"


class Kind(StrEnum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True, eq=False)  # each is itself alone, and found fast
class Family:
    """One metric, and all series of it.

    Attributes:
        name: Without the ``_total`` of a counter and the ``_info`` of an info.
        help: Its meaning, with the unit.
        labels: Names, in the order in which values are given.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def shown_name(self) -> str:
        """As queries name it."""
        return self.name + {Kind.COUNTER: "_total", Kind.INFO: "_info"}.get(self.kind, "")


_of = (JOB,)
_INFO_LABELS = (JOB, "framework", "gpu", "precision", "schedule", "pp", "dp", "tp", "version")

BUILD = Family("perseus_build", Kind.INFO, "The planner's version, and of its Python.", ("version", "python"))
RECEIVED = Family("perseus_received_messages", Kind.COUNTER, "Messages of agents.", ("kind",))
SENT = Family("perseus_sent_messages", Kind.COUNTER, "Messages to agents.", ("kind",))
CALLS = Family("perseus_operator_calls", Kind.COUNTER, "Operators' calls.", ("method",))
REFUSALS = Family(
    "perseus_refusals", Kind.COUNTER, "Streams and calls that ended in another status than OK.", ("code",)
)
PLANS = Family("perseus_plans", Kind.COUNTER, "Plans that were asked for.", ("outcome",))
PLANNING = Family("perseus_planning_seconds", Kind.HISTOGRAM, "From the request of a plan to its answer.")
QUEUED_REQUESTS = Family(
    "perseus_queued_planning_requests",
    Kind.GAUGE,
    "Planning requests of all planners of this version on the database that no worker has, some seconds ago.",
)
QUEUED_AGE = Family(
    "perseus_queued_planning_seconds", Kind.GAUGE, "How long the oldest of them had waited for a worker then."
)
QUEUED_OTHERS = Family(
    "perseus_queued_planning_requests_others",
    Kind.GAUGE,
    "The same of planners of other versions, which workers of this version do not take.",
)
PLANNING_WORKERS = Family(
    "perseus_planning_workers",
    Kind.GAUGE,
    "Processes on the database that only plan, of the planner's version and of others, some seconds ago.",
    ("version",),
)
WORKERS_AT_ONCE = Family(
    "perseus_planning_workers_at_once", Kind.GAUGE, "Requests that those of the planner's version plan at once."
)
SHARED_PLANS = Family(
    "perseus_shared_plans",
    Kind.COUNTER,
    "Planning requests that a worker elsewhere answered for this planner, and that this planner answered for others.",
    ("direction",),
)
STREAMS = Family("perseus_streams", Kind.COUNTER, "Agents' streams begun.")
STORE_FAILURES = Family(
    "perseus_store_failures",
    Kind.COUNTER,
    "Commits that disk or database did not take.",
)
OWNED_JOBS = Family("perseus_owned_jobs", Kind.GAUGE, "Jobs that this one of several replicas owns.")
TAKEOVERS = Family(
    "perseus_takeovers", Kind.COUNTER, "Jobs that this replica took over from another one, or from its earlier start."
)
LOST_JOBS = Family(
    "perseus_lost_jobs", Kind.COUNTER, "Jobs that other replicas took over from this one, because it was silent."
)
TICK_FAILURES = Family("perseus_tick_failures", Kind.COUNTER, "Ticks of jobs that failed, by a defect.")
OPEN_STREAMS = Family("perseus_open_streams", Kind.GAUGE, "Agents' streams now.")
STORE_IN_TROUBLE = Family("perseus_store_in_trouble", Kind.GAUGE, "1 while commits cannot be stored.")
LAST_BACKUP = Family(
    "perseus_last_backup_timestamp_seconds",
    Kind.GAUGE,
    "Unix time of the newest 'perseus-dist state backup' of its state folder; 0 without one.",
)
LOOP_LAG = Family("perseus_loop_lag_seconds", Kind.GAUGE, "How late the event loop was, at its latest tick.")
JOBS = Family("perseus_jobs", Kind.GAUGE, "Jobs that the planner holds, by phase of their life.", ("phase",))
JOBS_LEFT_OUT = Family(
    "perseus_jobs_left_out", Kind.GAUGE, "Jobs without series of their own, because there are too many."
)

_of_budget = ("budget",)
BUDGET = Family(
    "perseus_budget_watts", Kind.GAUGE, "A power budget's cap now, load targets included, where it has one.", _of_budget
)
BUDGET_PLANNED = Family(
    "perseus_budget_planned_watts",
    Kind.GAUGE,
    "Power of its jobs by their profiles, at the plans asked for.",
    _of_budget,
)
BUDGET_MEASURED = Family(
    "perseus_budget_measured_watts", Kind.GAUGE, "The same by their latest iterations, where all are known.", _of_budget
)
BUDGET_JOBS = Family("perseus_budget_jobs", Kind.GAUGE, "Jobs that it covers, known power or not.", _of_budget)
BUDGET_MET = Family("perseus_budget_met", Kind.GAUGE, "1 where the planned power keeps cap and guard band.", _of_budget)

_of_priced = (JOB, "policy")
PRICE_LEFT = Family(
    "perseus_job_price_iterations_left",
    Kind.GAUGE,
    "Of a job under a price policy, until its deadline.",
    _of_priced,
)
PRICE_KWH = Family("perseus_job_price_per_kwh", Kind.GAUGE, "By the policy's signal now, where it says.", _of_priced)
PRICE_PACED = Family(
    "perseus_job_price_slowed", Kind.GAUGE, "1 where the policy has the job slower than its own target.", _of_priced
)
PRICE_ON_TIME = Family(
    "perseus_job_price_on_time", Kind.GAUGE, "1 where the deadline is kept, by what is known now.", _of_priced
)

INFO = Family("perseus_job", Kind.INFO, "A job that is not over, and what it is; to join with.", _INFO_LABELS)
PHASE = Family("perseus_job_phase", Kind.GAUGE, "1 for the phase that the job is in.", (JOB, "phase"))
RANKS = Family("perseus_job_ranks", Kind.GAUGE, "Ranks of the job, attached or not.", _of)
ATTACHED = Family("perseus_job_attached_ranks", Kind.GAUGE, "Ranks attached.", _of)
CONTROLLED = Family(
    "perseus_job_controlled_ranks", Kind.GAUGE, "Ranks attached, by who sets their clocks.", (JOB, "control")
)
TABLE = Family("perseus_job_table_revision", Kind.GAUGE, "Newest plan table.", _of)
SWITCH = Family("perseus_job_switch_revision", Kind.GAUGE, "Newest switch.", _of)
TARGET_SLOWDOWN = Family(
    "perseus_job_target_slowdown_ratio",
    Kind.GAUGE,
    "Iteration time wanted, over the shortest.",
    _of,
)
TARGET_DEADLINE = Family(
    "perseus_job_target_deadline_seconds", Kind.GAUGE, "Iteration time wanted, where it is a deadline.", _of
)
MESSAGES = Family("perseus_job_messages", Kind.COUNTER, "Messages of the job's agents.", _of)
REFUSED_REPORTS = Family("perseus_job_refused_reports", Kind.GAUGE, "Ranks' reports that could not be taken.", _of)
MISSED_CLOCKS = Family(
    "perseus_job_missed_clocks", Kind.GAUGE, "Clocks that GPUs granted and did not reach, since the agents' start.", _of
)
LOST_BOUNDARIES = Family(
    "perseus_job_lost_boundaries", Kind.GAUGE, "Boundaries that agents were too late to read, since their start.", _of
)
ITERATION = Family("perseus_job_iteration", Kind.GAUGE, "The newest iteration begun.", _of)
ITERATION_TIME = Family(
    "perseus_job_iteration_seconds",
    Kind.HISTOGRAM,
    "Iterations, as far as all ranks have reported them.",
    _of,
)
MEDIAN_TIME = Family(
    "perseus_job_median_iteration_seconds",
    Kind.GAUGE,
    "An iteration at full clocks (the run's baseline), and under the plan in force.",
    (JOB, "iterations"),
)
MEDIAN_ENERGY = Family(
    "perseus_job_median_iteration_joules", Kind.GAUGE, "What all GPUs of the job draw in one.", (JOB, "iterations")
)
ENERGY = Family(
    "perseus_job_energy_joules",
    Kind.COUNTER,
    "Drawn in iterations whose energy is known.",
    _of,
)
SWITCH_TIME = Family(
    "perseus_job_switch_confirmation_seconds",
    Kind.HISTOGRAM,
    "From the decision of a switch until a rank has it, of every rank.",
    _of,
)
PREDICTED_SAVING = Family(
    "perseus_job_predicted_saving_ratio",
    Kind.GAUGE,
    "Share of energy that the plan in force saves against full clocks, by the profile.",
    _of,
)
PREDICTED_SAVING_LOW = Family(
    "perseus_job_predicted_saving_low_ratio",
    Kind.GAUGE,
    "Lower end of the interval in which that is likely to lie; absent where it is not known.",
    _of,
)
PREDICTED_SAVING_HIGH = Family("perseus_job_predicted_saving_high_ratio", Kind.GAUGE, "Its upper end.", _of)
MEASURED_SAVING = Family(
    "perseus_job_measured_saving_ratio", Kind.GAUGE, "The same by measurement, against the run's baseline.", _of
)
SAVED = Family(
    "perseus_job_saved_joules",
    Kind.GAUGE,
    "Saved in this run, by measurement; it may fall where more is known or plans draw more.",
    _of,
)
SAVED_DOUBT = Family("perseus_job_saved_doubt_joules", Kind.GAUGE, "By which that may be more or less.", _of)
LOST_TIME = Family(
    "perseus_job_lost_seconds", Kind.COUNTER, "By which iterations under plans took longer than allowed.", _of
)
PROBES = Family("perseus_job_probes", Kind.COUNTER, "Probes at full clocks.", _of)
FALLS = Family("perseus_job_falls", Kind.COUNTER, "Plans given up because they took too long.", _of)
DEGREE = Family(
    "perseus_job_measured_over_predicted_ratio",
    Kind.GAUGE,
    "An iteration's time or energy by measurement, over what the profile predicts.",
    (JOB, "iterations", "quantity"),
)
STAGE_CLOCK = Family(
    "perseus_job_stage_clock_hertz",
    Kind.GAUGE,
    "Latest clock read, the mean over a stage's GPUs, where it is known.",
    (JOB, "pp_rank"),
)
STAGE_POWER = Family(
    "perseus_job_stage_power_watts",
    Kind.GAUGE,
    "Latest power read, the mean over a stage's GPUs, where it is known.",
    (JOB, "pp_rank"),
)
THROTTLED = Family(
    "perseus_job_throttled_gpus", Kind.GAUGE, "GPUs that heat or the power supply slows, by their latest reading.", _of
)
STRAGGLERS = Family("perseus_job_stragglers", Kind.GAUGE, "Stragglers waited for, detected or reported.", _of)
STRAGGLER_DEGREE = Family(
    "perseus_job_straggler_degree_ratio",
    Kind.GAUGE,
    "Time over the time expected, of the slowest of them; 1: none.",
    _of,
)
T_PRIME = Family("perseus_job_t_prime_seconds", Kind.GAUGE, "What pipelines wait for; 0 where none waits.", _of)
VERDICTS = Family("perseus_job_straggler_verdicts", Kind.COUNTER, "Stragglers found, by cause.", (JOB, "cause"))
PIPELINE_TIME = Family(
    "perseus_job_pipeline_seconds",
    Kind.GAUGE,
    "A pipeline's latest iteration until gradient synchronisation.",
    (JOB, "pipeline"),
)

ALL: tuple[Family, ...] = tuple(value for value in globals().copy().values() if isinstance(value, Family))
"""In the order of this file."""
