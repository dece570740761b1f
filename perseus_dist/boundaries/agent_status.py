"""Status of an agent for its trainer's own monitor: one small block in their shared memory.

The agent writes it about once a second, and the trainer reads it whenever it likes; neither waits. A checksum tells a
block that was caught half written.
"""

import math
import struct
from dataclasses import dataclass
from zlib import crc32

NO_ITERATION = -1

_MAX_TARGET_BYTES = 40  # the longest that the planner knows has 35
_BODY = struct.Struct(f"<16sqddddddii{_MAX_TARGET_BYTES}s")
_CHECKSUM = struct.Struct("<I")
STATUS_BYTES = _BODY.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """How it goes, as far as the agent knows.

    Attributes:
        phase: Of the job, as at the planner; empty until a planner has told it. This and all else of the job is known
            to rank 0's agent, and to those of ranks that show the job.
        iteration: The newest one that this rank's figures are of; ``NO_ITERATION`` before the first.
        time_s: [s] that it took.
        energy_j: [J] that this rank's GPU drew in it; None where that is not known.
        clock_mhz: [MHz] asked for now; 0 where none is.
        job_time_s: [s] of the whole job's newest iteration; 0 where it is not known.
        job_energy_j: [J] of all GPUs in it; None where that is not known.
        predicted_saving: Share of energy that the plans in force save by the profile; 0 without.
        target: The iteration time that the job wants: ``t_min``, ``slowdown=1.05`` or ``deadline_s=2.5``; empty where
            it is not known.
        num_stragglers: That the planner knows of now.
        straggler_degree: By how much the slowest is: its iteration's time over that at all-maximum clocks; 1 without.
    """

    phase: str = ""
    iteration: int = NO_ITERATION
    time_s: float = 0.0
    energy_j: float | None = None
    clock_mhz: int = 0
    job_time_s: float = 0.0
    job_energy_j: float | None = None
    predicted_saving: float = 0.0
    target: str = ""
    num_stragglers: int = 0
    straggler_degree: float = 1.0


def encode_status(status: AgentStatus) -> bytes:
    """The block's bytes."""
    body = _BODY.pack(
        status.phase.encode("ascii"),
        status.iteration,
        status.time_s,
        _number(status.energy_j),
        status.job_time_s,
        _number(status.job_energy_j),
        status.predicted_saving,
        status.straggler_degree,
        status.clock_mhz,
        status.num_stragglers,
        status.target.encode("ascii"),
    )
    return body + _CHECKSUM.pack(crc32(body))


def decode_status(block: bytes) -> AgentStatus | None:
    """The inverse of ``encode_status``; None where the block is not whole, or was never written."""
    if crc32(block[: _BODY.size]) != _CHECKSUM.unpack_from(block, _BODY.size)[0]:
        return None
    (
        phase,
        iteration,
        time_s,
        energy_j,
        job_time_s,
        job_energy_j,
        predicted_saving,
        straggler_degree,
        clock_mhz,
        num_stragglers,
        target,
    ) = _BODY.unpack_from(block)
    return AgentStatus(
        phase=_text(phase),
        iteration=iteration,
        time_s=time_s,
        energy_j=None if math.isnan(energy_j) else energy_j,
        clock_mhz=clock_mhz,
        job_time_s=job_time_s,
        job_energy_j=None if math.isnan(job_energy_j) else job_energy_j,
        predicted_saving=predicted_saving,
        target=_text(target),
        num_stragglers=num_stragglers,
        straggler_degree=straggler_degree,
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("ascii")
