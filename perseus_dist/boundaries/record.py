"""One boundary as 64 bytes. Standard library only: the trainer writes them, its agent reads them.

The last four bytes are a checksum, so that a record that is half old and half new is seen as such on any memory model.
"""

import struct
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

RECORD_BYTES = 64
MAX_KIND_BYTES = 16
NO_MICROBATCH = -1

# sequence, host_ns, device_ns, timed_sequence, iteration, microbatch, chunk, event, padding, kind; then the checksum.
_BODY = struct.Struct(f"<QqqQiihBx{MAX_KIND_BYTES}s")
_CHECKSUM = struct.Struct("<I")


class Event(IntEnum):
    """The kind of a boundary record."""

    ITERATION_BEGIN = 1
    ITERATION_END = 2
    BEGIN = 3
    END = 4
    MARK = 5
    TIMING = 6
    CLOSE = 7
    WORK = 8


class Mark:
    """Names that ``Event.MARK`` carries as its kind; a trainer may write others."""

    GRAD_SYNC = "grad_sync"
    """From here on this rank waits for its data-parallel peers."""

    EVAL_BEGIN = "eval_begin"
    EVAL_END = "eval_end"

    CHECKPOINT = "checkpoint"
    """Until the next boundary the trainer saves its state."""

    RELEASE = "release"
    """The plan does not fit what runs: clocks are to be released until the next iteration begins."""


class Boundary(NamedTuple):
    """A point in the trainer's work.

    Attributes:
        sequence: Counts the trainer's records from 1.
        event: What happened.
        kind: The instruction's kind, or the mark's name: at most 16 ASCII characters.
        chunk: Model chunk on this rank.
        microbatch: Index in the iteration, or -1.
        iteration: The newest iteration begun.
        host_ns: [ns] CLOCK_MONOTONIC when Python was there.
        device_ns: [ns] TIMING: how long after the iteration's first boundary the device reached the boundary
            ``timed_sequence``. WORK: waited for input data in the iteration, -1 where that is not known. Otherwise 0.
        timed_sequence: TIMING: which boundary was timed; kind, chunk, microbatch and iteration are that boundary's.
            WORK: tokens that the rank has worked on in the iteration, 0 where that is not known. Otherwise 0.
    """

    sequence: int
    event: Event
    kind: str
    chunk: int
    microbatch: int
    iteration: int
    host_ns: int
    device_ns: int = 0
    timed_sequence: int = 0


def encode_record(
    sequence: int,
    event: int,
    kind: bytes,
    chunk: int,
    microbatch: int,
    iteration: int,
    host_ns: int,
    device_ns: int = 0,
    timed_sequence: int = 0,
) -> bytes:
    """The 64 bytes of a boundary. Arguments are positional and plain because this is the trainer's hot path.

    Raises:
        struct.error: A number does not fit its field.
    """
    body = _BODY.pack(sequence, host_ns, device_ns, timed_sequence, iteration, microbatch, chunk, event, kind)
    return body + _CHECKSUM.pack(crc32(body))


def decode_record(record: bytes) -> Boundary | None:
    """The inverse of ``encode_record``; None where the checksum says that the record is not whole."""
    if crc32(record[: _BODY.size]) != _CHECKSUM.unpack_from(record, _BODY.size)[0]:
        return None
    sequence, host_ns, device_ns, timed, iteration, microbatch, chunk, event, kind = _BODY.unpack_from(record)
    return Boundary(
        sequence=sequence,
        event=Event(event),
        kind=kind.rstrip(b"\0").decode("ascii"),
        chunk=chunk,
        microbatch=microbatch,
        iteration=iteration,
        host_ns=host_ns,
        device_ns=device_ns,
        timed_sequence=timed,
    )
