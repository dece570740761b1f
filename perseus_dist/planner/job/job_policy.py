"""How patient the planner is: the numbers behind the decisions of a job's life cycle."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Times are seconds of the planner's monotonic clock.

    Attributes:
        num_warmup_iterations: Whole iterations, reported by every rank, that say nothing yet.
        num_warmup_with_plan: The same, of a run that begins with the plan of an earlier one.
        num_baseline_iterations: Those after them that the baseline is made of.
        max_baseline_spread: Interquartile range over median, above which a baseline is measured again.
        max_baseline_iterations: The same, where iterations are short beside the ticks of the energy counter.
        max_baseline_attempts: Baselines measured, the last of which counts however wide it is.
        baseline_patience_s: How long a plan of an earlier run waits at least for a run's baseline.
        max_sweep_clocks: Clocks that a sweep may choose from, the maximum included.
        num_first_clocks: Clocks of its first round, unless replicas can measure more in the same time.
        max_measured_clocks: Of all its rounds.
        max_sweep_rounds: Each chooses its clocks by what those before have measured.
        max_saving_doubt: Share of the energy at the maximum clock that a plan may lose between two measured clocks.
        plans_between_clocks: Whether plans may ask for clocks that lie between those that were measured.
        carries_stages: Whether a job in another shape is planned with what was measured of its stages before.
        plans_ahead: Whether plans for shapes that the job may come back in are made while it is under a plan.
        ahead_after_s: From the newest request for a plan of the job's own to those for other shapes.
        shares_sweep: Whether replicas of a stage measure different clocks.
        num_energy_periods: Periods of the energy counter that a clock is held for, to measure blocking power alone.
        num_profile_periods: The same, to measure a profile, of which one clock is one point of several.
        max_iterations_per_clock: However short an iteration is.
        num_rises_to_stop: Clocks in a row at which every instruction drew more than at its best one: the sweep stops.
        max_sweep_attempts: Sweeps of one series, where samples are missing.
        rights_grace_s: How long all ranks of a sweep may be unable to set clocks before it stops.
        absence_grace_s: How long a rank may be away before a sweep that lacks its samples pauses.
        sample_grace_s: How long samples may be on their way after a sweep's last iteration.
        message_s: A message is with every agent within this.
        report_s: Iterations are reported within this after they end.
        default_switch_latency_s: Reckoned with until an agent has seen one.
        drift_settle_s: From the first report of drift to measuring again, so that others can join.
        min_reprofile_interval_s: Between two re-profilings of a run.
        far_drift: Share by which times of several ranks leave the profile, beyond which the plan is dropped at once.
        lasting_drift_iterations: In a row, after which such times are no passing disturbance.
        saving_period_s: Between two times that the joules saved are stored; a planner that is killed forgets no more.
        whole_up_to: Instructions of a pipeline up to which no first plan is put in force before the whole frontier.
        planning_retry_s: Before asking a planning worker again that has died.
        max_planning_attempts: Of the same profile.
        gone_s: A job none of whose ranks is attached is over after this.
        keep_done_s: A job that is over is forgotten after this.
        acts_on_stragglers: Whether plans follow the straggler detector, too, and not operators' reports alone.
        shows_timelines: Whether ranks are asked for times of iterations under a plan, too.
        own_plan_interval_s: Between two requests for a plan of a pipeline with a slow rank.
        own_plan_cap_share: Such a plan is made again where the clock that the rank is held to has moved by this share.
        own_plan_factor_step: The same, where how slow it is has moved by this.
    """

    num_warmup_iterations: int = 3
    num_warmup_with_plan: int = 1
    num_baseline_iterations: int = 5
    max_baseline_spread: float = 0.05
    max_baseline_iterations: int = 50
    max_baseline_attempts: int = 2
    baseline_patience_s: float = 30.0
    max_sweep_clocks: int = 24
    num_first_clocks: int = 6
    max_measured_clocks: int = 8
    max_sweep_rounds: int = 4
    max_saving_doubt: float = 0.007
    plans_between_clocks: bool = True
    carries_stages: bool = True
    plans_ahead: bool = False
    ahead_after_s: float = 10.0
    shares_sweep: bool = True
    num_energy_periods: int = 100
    num_profile_periods: int = 50
    max_iterations_per_clock: int = 200
    num_rises_to_stop: int = 3
    max_sweep_attempts: int = 3
    rights_grace_s: float = 10.0
    absence_grace_s: float = 2.0
    sample_grace_s: float = 5.0
    message_s: float = 0.3
    report_s: float = 2.0
    default_switch_latency_s: float = 0.012
    drift_settle_s: float = 5.0
    min_reprofile_interval_s: float = 600.0
    far_drift: float = 0.05
    lasting_drift_iterations: int = 16
    saving_period_s: float = 2.0
    whole_up_to: int = 512
    planning_retry_s: float = 10.0
    max_planning_attempts: int = 3
    gone_s: float = 900.0
    keep_done_s: float = 86_400.0
    acts_on_stragglers: bool = True
    shows_timelines: bool = False
    own_plan_interval_s: float = 5.0
    own_plan_cap_share: float = 0.02
    own_plan_factor_step: float = 0.01
