"""Facts of a job and its runs: what it is, what it computes, and what was measured of it as a whole."""

from dataclasses import dataclass

from perseus_dist.fingerprint import Fingerprint
from perseus_dist.planner.job.facts.keyed import KeyedFact
from perseus_dist.planner.job.saving.kept import KeptSaving


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRegistered(KeyedFact):
    """The job exists. Written by the first rank of each run.

    Attributes:
        token_sha256: Whom the job belongs to: the hexadecimal hash of a token, or ``uid:1000``; empty for anybody.
        held_revision, held_switch_revision, last_sweep_id: What earlier runs of the job have used up.
        run_id: Of the run, as its ranks say it.
        earlier_runs: Ids of the latest runs before it, the oldest first.
        keeps_profile: The profile was measured while the job had another schedule.
        is_anew: Nothing of earlier runs is left, so that ranks which attach later are not compared with them.
        granularity: As of ``messages.terms.Rank``, the same for all ranks.
    """

    schedule_digest: str
    pp_size: int
    dp_size: int
    tp_size: int
    token_sha256: str
    held_revision: int = 0
    held_switch_revision: int = 0
    last_sweep_id: int = 0
    run_id: str = ""
    earlier_runs: tuple[str, ...] = ()
    keeps_profile: bool = False
    is_anew: bool = False
    granularity: str = "instruction"

    KEY = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintKnown(KeyedFact):
    """A rank's work, as far as it was ever known: the stored profile, plan and baseline are of this work.

    Attributes:
        run_id: Of the run that it was last compared in.
    """

    rank: int
    run_id: str
    fingerprint: Fingerprint

    KEY = "fingerprint/{0.rank}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleReceived(KeyedFact):
    """The schedule's text, once the planner has checked it."""

    text: str

    KEY = "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineMeasured(KeyedFact):
    """Iterations of the whole job at full clocks in the present run, as ``MeasuredIterations``.

    Attributes:
        is_probed: They are of probes, not of the run's begin.
    """

    num_iterations: int
    time_s: float
    time_spread_s: float
    energy_j: float
    energy_spread_j: float
    is_probed: bool = False

    KEY = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingCounted(KeyedFact):
    """[J] saved in the present run, by measurement, and by how much that may be wrong; stored from time to time.

    Attributes:
        kept: What may be counted anew as more is measured; None in what earlier versions stored.
    """

    saved_j: float
    doubt_j: float = 0.0
    kept: KeptSaving | None = None

    KEY = "saved"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded(KeyedFact):
    """The job is done, and why. Dropped when a rank attaches again.

    Attributes:
        over_s: [s] that it has been over for, as of when this was stored.
    """

    reason: str
    over_s: float = 0.0

    KEY = "over"
