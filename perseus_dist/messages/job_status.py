"""From a planner to operators, reports and metrics: where a job stands, its frontier, its profile."""

from dataclasses import dataclass

from perseus_dist.messages.terms import NO_ITERATION, NO_POINT, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredIterations:
    """Some iterations of the whole job; figures are 0 where there is nothing to measure.

    Attributes:
        num_iterations: Behind the figures.
        time_s: Median.
        time_spread_s: Interquartile range.
        energy_j: Median of what all GPUs of the job drew, of a baseline the mean of its ordinary iterations; 0 where it
            is not known.
        energy_spread_j: Interquartile range.
    """

    num_iterations: int = 0
    time_s: float = 0.0
    time_spread_s: float = 0.0
    energy_j: float = 0.0
    energy_spread_j: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """One data-parallel replica; figures are 0, and ``point`` is -1, where there is nothing yet.

    Attributes:
        time_s: Of its latest iteration, waiting for the other pipelines included.
        pipeline_time_s: The same until it waits for gradient synchronisation: the slowest of its ranks.
        table_revision, point: What it is to follow; a table of its own where one of its ranks is slow.
        is_waiting: Whether its plan is slower than the target's, for a straggler's sake.
    """

    dp_rank: int
    attached_ranks: int = 0
    iteration: int = NO_ITERATION
    time_s: float = 0.0
    energy_j: float = 0.0
    table_revision: int = 0
    point: int = NO_POINT
    planned_time_s: float = 0.0
    planned_energy_j: float = 0.0
    pipeline_time_s: float = 0.0
    is_waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """As reported: a pipeline's iterations last ``degree`` times the time at all-maximum clocks.

    A degree of 1: it does not straggle.
    """

    straggler_id: str
    degree: float
    dp_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerVerdict:
    """A verdict of the detector on a rank, or on a whole pipeline; ``verdict.Verdict`` documents it.

    Attributes:
        degree, low, high: Time over the time expected, and the interval that it lies in.
        age_s: How long ago it began.
        is_muted: An operator's report on its pipeline wins.
        sentence: All this for an operator.
    """

    rank: int
    pp_rank: int
    dp_rank: int
    degree: float
    low: float
    high: float
    cause: str
    age_s: float
    is_whole_pipeline: bool
    is_predicted: bool
    is_flapping: bool
    is_acted_upon: bool
    is_muted: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """A straggler seen or over, a report, a switch: the newest ones of a job, each told for as long as it is kept.

    Attributes:
        sequence: Counts the job's events from 1, in this life of the planner.
        kind: ``verdict``, ``recovered``, ``reported``, ``cleared``, ``switch``, ``fall``: a plan was given up,
            ``anew``: what was measured is of other work than what runs now, ``self_check``: iterations are not as
            predicted, or ``sweep``: what one will cost at most, or has cost.
        age_s: How long ago it happened.
        iteration: The newest one begun then.
        effective_iteration: Of a switch; otherwise -1.
        switch_revision: Of a switch; otherwise 0.
        rank, dp_rank: Which it is about; -1 for none in particular.
        degree, low, high: Of a verdict or a report; otherwise 0.
        cause: Of a verdict; otherwise empty.
        t_prime_s: Of a switch: what the others wait for; 0 where none waits.
        points: Of a switch: each pipeline's.
    """

    sequence: int
    kind: str
    age_s: float
    iteration: int
    sentence: str
    effective_iteration: int = NO_ITERATION
    switch_revision: int = 0
    rank: int = -1
    dp_rank: int = -1
    degree: float = 0.0
    low: float = 0.0
    high: float = 0.0
    cause: str = ""
    t_prime_s: float = 0.0
    points: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFigures:
    """Figures of the guard of the promise; 0 where there is nothing yet.

    Attributes:
        reference_s: [s] an iteration at full clocks, by the newest that ran so.
        lost_s: [s] by which iterations under plans took longer than the target allows, as far as probes confirmed it.
        probes: Ordered, a few iterations each at full clocks.
        falls: Plans that were given up because they took too long.
    """

    reference_s: float = 0.0
    lost_s: float = 0.0
    probes: int = 0
    falls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """Figures of a job, which go under their names to operators, ``job.json`` and ``report.json``.

    A figure is 0 where there is nothing yet. Its unit, at the end of its name, says what the wire accepts of it.

    Attributes:
        pipelines: By dp_rank.
        table_revision: Of the newest plan.
        fastest_s, t_star_s: [s] an iteration's shortest time, and that of least energy, by the profile.
        baseline: At full clocks, of the present run.
        enforced: Iterations under the plan in force.
        predicted_saving: Share of energy, of the plan in force against all-maximum clocks.
        predicted_saving_low, predicted_saving_high: Where it is likely to lie, by the profile's errors and the
            self-check; both 0 where that is not known.
        profiled_clocks: How many the sweep tried.
        missed_clocks, lost_boundaries: Of all ranks, since their agents' start.
        troubles: A sentence each.
        t_prime_s: [s] the time of the slowest pipeline, which the others wait for; 0 where none waits.
        saved_j: [J] by measurement, since the first plan of the present run: what the same iterations would have drawn
            at all-maximum clocks, waiting for the same straggler, minus what they drew.
        saved_doubt_j: [J] by which that may be more or less: counters tick, and times between two probes are not known.
        refused_reports: Ranks' reports that the detector could not take, since it began.
        guard: Figures of the guard of the promise.
        full_time_degree, full_energy_degree: An iteration at full clocks, measured over what the profile predicts.
        plan_time_degree, plan_energy_degree: The same under the plan in force. ``troubles`` say so where times are more
            than 1 % apart, and what explains it.
    """

    pipelines: tuple[PipelineStatus, ...] = ()
    table_revision: int = 0
    fastest_s: float = 0.0
    t_star_s: float = 0.0
    baseline: MeasuredIterations = MeasuredIterations()
    enforced: MeasuredIterations = MeasuredIterations()
    predicted_saving: float = 0.0
    predicted_saving_low: float = 0.0
    predicted_saving_high: float = 0.0
    profiled_clocks: int = 0
    missed_clocks: int = 0
    lost_boundaries: int = 0
    troubles: tuple[str, ...] = ()
    t_prime_s: float = 0.0
    saved_j: float = 0.0
    saved_doubt_j: float = 0.0
    refused_reports: int = 0
    guard: GuardFigures = GuardFigures()
    full_time_degree: float = 0.0
    full_energy_degree: float = 0.0
    plan_time_degree: float = 0.0
    plan_energy_degree: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus(JobFigures):
    """A job as its planner knows it.

    Attributes:
        reason: The sentence that led to the phase.
        stragglers: As reported by operators.
        messages: That its agents sent.
        verdicts: The detector's.
        events: The newest ones, ascending.
        progress: Where the phase stands, in a few words; empty where there is nothing to say.
        progress_share: Of the phase that is done; 0 where it is not known.
        phase_left_s: [s] until the phase is over; 0 where it is not known.
    """

    job_id: str
    phase: str
    reason: str
    num_ranks: int
    switch_revision: int
    target: Target
    stragglers: tuple[Straggler, ...]
    messages: int
    verdicts: tuple[StragglerVerdict, ...] = ()
    events: tuple[JobEvent, ...] = ()
    progress: str = ""
    progress_share: float = 0.0
    phase_left_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One plan: its time, and what one pipeline draws until its own end."""

    time_s: float
    energy_j: float
    lower_bound_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFrontier:
    """The plans of a job's newest table; the baseline is all-maximum clocks, by the profile."""

    table_revision: int
    points: tuple[FrontierPoint, ...]
    baseline_time_s: float
    baseline_energy_j: float
    fastest_s: float
    t_star_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProfile:
    """A job's measured profile, and the power that one of its GPUs draws while it waits."""

    csv: str
    blocking_power_w: float
