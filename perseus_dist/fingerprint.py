"""Identity of a rank's work, so that measurements of other work are not used again under the same job name.

A planner keeps a job's profile, plan and baseline by the job's name. Each rank says at registration what it runs, on
which GPU; a *fingerprint* is that statement. What each kept thing needs of it:

- a *profile* needs ``PROFILE_FIELDS``: what the time and energy of an instruction depend on. The schedule is not among
  them: another number of microbatches leaves the time of each instruction as it is. Nor is the granularity of clocks, a
  rank's or an instruction's. The sizes of the job's groups are,
  because a profile also holds constants (gradient reduction, optimizer step) whose time depends on them;
- a *plan* and a *baseline* need every field.

A field that is not known (0, empty) proves nothing, and is not compared. A value once known stays on file while later
ones are unknown (``merged``), so that A, unknown, B differs as A, B does. Sizes and texts are compared exactly; power
limits and memory are whole watts and MiB, so that a driver's rounding is no difference.
"""

import hashlib
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

_DIGEST_LENGTH = 12  # shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The workload as a rank's trainer knows it; 0 or empty is not known.

    Attributes:
        framework: Name, such as ``deepspeed``.
        versions: Of the framework and what computes beneath it, such as ``torch 2.13.0``, sorted.
        precision: That layers compute in, such as ``bf16``.
        microbatch_size: Samples of one microbatch on this rank.
        sequence_length: Tokens of one sample.
        stage_parameters: (num_chunks) parameters that this rank holds, by model chunk.
        stage_layers: (num_chunks) transformer layers that this rank holds, by model chunk.
        tp_size, cp_size, ep_size: Ranks in the tensor-, context- and expert-parallel group, as the framework says.
    """

    framework: str = ""
    versions: tuple[str, ...] = ()
    precision: str = ""
    microbatch_size: int = 0
    sequence_length: int = 0
    stage_parameters: tuple[int, ...] = ()
    tp_size: int = 0
    cp_size: int = 0
    ep_size: int = 0
    stage_layers: tuple[int, ...] = ()


UNKNOWN_WORKLOAD = Workload()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The work of one rank; 0 or empty is not known.

    Attributes:
        schedule_digest: Of the whole pipeline's schedule; the number of microbatches is part of it.
        granularity: As of ``messages.terms.Rank``.
        pp_size, dp_size: Stages of a pipeline, and pipelines.
        node_size: Ranks that do each instruction together.
        gpu_name: Product name.
        gpu_memory_mib: [MiB] in all.
        clocks_mhz: [MHz] that the GPU supports and an agent may set, descending.
        default_power_limit_w, power_limit_w: [W] by default, and enforced as the agent started.
        power_profiles: Workload power profiles that an operator's tool had set then; ``none`` is known.
        workload: What the trainer knows.
    """

    schedule_digest: str = ""
    granularity: str = ""
    pp_size: int = 0
    dp_size: int = 0
    node_size: int = 0
    gpu_name: str = ""
    gpu_memory_mib: int = 0
    clocks_mhz: tuple[int, ...] = ()
    default_power_limit_w: int = 0
    power_limit_w: int = 0
    power_profiles: str = ""
    workload: Workload = UNKNOWN_WORKLOAD


class Difference(NamedTuple):
    """One field that differs: its name, and both values as text."""

    field: str
    before: str
    now: str

    @property
    def clause(self) -> str:
        """As ``the GPU was NVIDIA A100 and is NVIDIA A40``."""
        return f"the {_LABELS[self.field]} was {self.before} and is {self.now}"


_LABELS = {
    "schedule_digest": "schedule",
    "granularity": "unit that has one clock",
    "pp_size": "number of pipeline stages",
    "dp_size": "number of pipelines",
    "node_size": "number of ranks that compute together",
    "gpu_name": "GPU",
    "gpu_memory_mib": "GPU memory [MiB]",
    "clocks_mhz": "clock menu",
    "default_power_limit_w": "default power limit [W]",
    "power_limit_w": "power limit [W]",
    "power_profiles": "workload power profile",
    "framework": "framework",
    "versions": "software",
    "precision": "precision",
    "microbatch_size": "microbatch size",
    "sequence_length": "sequence length",
    "stage_parameters": "number of parameters",
    "stage_layers": "number of layers",
    "tp_size": "tensor-parallel size",
    "cp_size": "context-parallel size",
    "ep_size": "expert-parallel size",
}
PLAN_FIELDS = frozenset(_LABELS)
PROFILE_FIELDS = PLAN_FIELDS - {"schedule_digest", "granularity"}
STAGE_FIELDS = PROFILE_FIELDS - {"pp_size", "dp_size", "stage_parameters", "stage_layers"}
"""Fields that the times of a stage's instructions depend on, but for the part of the model that it holds."""


def differences(before: Fingerprint, now: Fingerprint) -> tuple[Difference, ...]:
    """The fields that are known in both and differ."""
    was, is_now = _values(before), _values(now)
    return tuple(
        Difference(name, _text(name, was[name]), _text(name, is_now[name]))
        for name in _LABELS
        if was[name] and is_now[name] and was[name] != is_now[name]
    )


def of_stage(fingerprint: Fingerprint) -> Fingerprint:
    """The same with ``STAGE_FIELDS`` alone."""
    workload = replace(fingerprint.workload, stage_parameters=(), stage_layers=())
    return replace(fingerprint, schedule_digest="", granularity="", pp_size=0, dp_size=0, workload=workload)


def fits_profile(found: tuple[Difference, ...]) -> bool:
    """Whether a profile measured before these differences holds after them."""
    return not any(difference.field in PROFILE_FIELDS for difference in found)


def merged(before: Fingerprint, now: Fingerprint) -> Fingerprint:
    """The known fields of this workload, with those of an earlier one where this one does not know."""
    was, is_now = _values(before), _values(now)
    known = {name: is_now[name] or was[name] for name in _LABELS}
    workload = Workload(**{field.name: known.pop(field.name) for field in fields(Workload)})
    return Fingerprint(**known, workload=workload)


def family_key(fingerprint: Fingerprint) -> str:
    """A name, 8 hexadecimal digits, for the same work in all numbers of stages, pipelines and layers of a stage."""
    values = _values(fingerprint)
    stated = [(name, values[name]) for name in sorted(STAGE_FIELDS)]
    return hashlib.sha256(repr(stated).encode()).hexdigest()[:8]


def profile_key(fingerprint: Fingerprint, saved_profile: bytes = b"", *, uid: int = 0) -> str:
    """A name, 16 hexadecimal digits, for all work of a user that a profile of this work holds for.

    Args:
        fingerprint: Of one rank.
        saved_profile: Content of the profile that the user named, which is measured no more.
        uid: The user: in a folder that several share, each has files of their own.
    """
    values = _values(fingerprint)
    stated = [(name, values[name]) for name in sorted(PROFILE_FIELDS)] + ([("uid", uid)] if uid else [])
    return hashlib.sha256(repr(stated).encode() + saved_profile).hexdigest()[:16]


def _values(fingerprint: Fingerprint) -> dict[str, Any]:
    """By name, those of the workload among them."""
    own = {field.name: getattr(fingerprint, field.name) for field in fields(Fingerprint)}
    workload = own.pop("workload")
    return own | {field.name: getattr(workload, field.name) for field in fields(Workload)}


def _text(name: str, value: Any) -> str:
    """A value in a sentence, short."""
    if name == "schedule_digest":
        return str(value[:_DIGEST_LENGTH])
    if name == "clocks_mhz":
        return f"{len(value)} clocks from {value[0]} to {value[-1]} MHz"
    if isinstance(value, tuple):
        return (" + " if name in ("stage_parameters", "stage_layers") else ", ").join(map(str, value))
    return str(value)
