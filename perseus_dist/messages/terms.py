"""Terms of every conversation: a rank, its GPU, and the iteration time that its job is to take."""

from dataclasses import dataclass, replace

from perseus_dist.fingerprint import Fingerprint, Workload

NO_ITERATION = -1
NO_POINT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Where a rank stands in its job, as the framework says it.

    Attributes:
        granularity: What can have a clock of its own: each ``instruction``, or each ``rank`` all through an iteration
            whose instructions cannot be seen.
    """

    job_id: str
    rank: int
    pp_rank: int
    dp_rank: int
    tp_rank: int
    pp_size: int
    dp_size: int
    tp_size: int
    schedule_digest: str
    granularity: str = "instruction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A rank's GPU and who may set its clocks.

    Attributes:
        clocks_mhz: Supported and allowed, descending; empty where the rank cannot set clocks.
        control: ``clockd``, ``zeusd``, ``direct`` or ``observe``.
        refusal: Why control is ``observe``; empty otherwise.
        energy_period_s: How often the energy counter is published; 0 where there is none.
        memory_mib: In all; 0 where it is not known.
        default_power_limit_w, power_limit_w: By default, and enforced as the agent started; 0 where not known.
        power_profiles: Workload power profiles enforced then, or ``none``; empty where the GPU has no such thing.
    """

    uuid: str
    name: str
    driver_version: str
    clocks_mhz: tuple[int, ...]
    control: str
    refusal: str = ""
    energy_period_s: float = 0.0
    memory_mib: int = 0
    default_power_limit_w: float = 0.0
    power_limit_w: float = 0.0
    power_profiles: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The iteration time that a job wants: exactly one of ``slowdown`` (>= 1), ``deadline_s``, or neither for T_min."""

    slowdown: float | None = None
    deadline_s: float | None = None


T_MIN = Target()


def fingerprint_of(rank: Rank, gpu: Gpu, workload: Workload) -> Fingerprint:
    """Of a rank's work, by all that it says of itself."""
    return replace(
        shape_of(rank),
        gpu_name=gpu.name,
        gpu_memory_mib=gpu.memory_mib,
        clocks_mhz=gpu.clocks_mhz,
        default_power_limit_w=round(gpu.default_power_limit_w),
        power_limit_w=round(gpu.power_limit_w),
        power_profiles=gpu.power_profiles,
        workload=workload,
    )


def shape_of(rank: Rank) -> Fingerprint:
    """Schedule, granularity and sizes alone."""
    return Fingerprint(
        schedule_digest=rank.schedule_digest,
        granularity=rank.granularity,
        pp_size=rank.pp_size,
        dp_size=rank.dp_size,
        node_size=rank.tp_size,
    )
