"""Boundaries in shared memory: one writer (the trainer), one reader (its agent), and a word that the GPU writes.

```
 0      magic, version, capacity, writer's pid
 64     head: sequence of the newest record                        written by the trainer
 128    dropped: records that could not be written                 written by the trainer
 192    device_ordered: whether the device says how far it is      written by the trainer
 256    progress: low 32 bits of the newest sequence reached       written by the device
 320    watched: whether the reader looks often by itself          written by the agent
 384    status: what the agent tells the trainer (agent_status.py) written by the agent
 65536  records, 64 bytes each, at (sequence % capacity)
```
Each word has a cache line of its own, the status three. The file has no name (memfd): nothing is left behind, however
the trainer ends. Records carry a checksum and their sequence, so the reader needs no order between the record's stores
and the head's: what does not fit is read again later.
"""

import mmap
import os
import struct
from collections.abc import Callable

from perseus_dist.boundaries.agent_status import STATUS_BYTES, AgentStatus, decode_status, encode_status
from perseus_dist.boundaries.descriptors import above_standard
from perseus_dist.boundaries.mapping import SharedMapping
from perseus_dist.boundaries.record import RECORD_BYTES, Boundary, decode_record

MAGIC = b"PERSEUSB"
VERSION = 5
CAPACITY = 16_384
HEADER_BYTES = 65_536  # whole pages of any size that Linux uses: this part is mapped into the device

_IDENTITY = struct.Struct("<8sIII")
_STATUS_BLOCK = struct.Struct(f"{STATUS_BYTES}s")
_HEAD = 64
_DROPPED = 128
_DEVICE_ORDERED = 192
PROGRESS_OFFSET = 256
_WATCHED = 320
_STATUS = 384
_OF_TRAINER_AND_DEVICE = slice(_HEAD, PROGRESS_OFFSET + 4)
_FILE_BYTES = HEADER_BYTES + CAPACITY * RECORD_BYTES


class RingFormatError(ValueError):
    """The memory is not a ring of this version: trainer and agent are of different installations."""


class RingWriter:
    """The trainer's side. Creates the memory.

    Attributes:
        fd: To be passed to the reader; closed on exec otherwise.
        head: Sequence of the newest record, 0 before the first.
        address: Of the header, for the device.
        is_closed: Nothing is written any more.

    Raises:
        OSError: No shared memory could be had.
    """

    def __init__(self) -> None:
        self.fd = above_standard(os.memfd_create("perseus-boundaries", os.MFD_CLOEXEC))
        try:
            os.ftruncate(self.fd, _FILE_BYTES)
            self._mapping = SharedMapping(self.fd, _FILE_BYTES)
        except BaseException:
            os.close(self.fd)
            raise
        self.address = self._mapping.address
        self.memory = self._mapping.memory
        with self.memory[:HEADER_BYTES] as header:
            self._words64 = header.cast("Q")
            self._words32 = header.cast("I")
        self.head = 0
        self.is_closed = False
        _IDENTITY.pack_into(self.memory, 0, MAGIC, VERSION, CAPACITY, os.getpid())

    def write(self, record: bytes) -> None:
        """Publish a record whose sequence is ``head + 1``."""
        sequence = self.head + 1
        offset = HEADER_BYTES + sequence % CAPACITY * RECORD_BYTES
        self.memory[offset : offset + RECORD_BYTES] = record
        self._words64[_HEAD // 8] = self.head = sequence

    def count_dropped(self) -> None:
        """A record could not be written; the reader counts it as lost."""
        self._words64[_DROPPED // 8] += 1

    def set_device_ordered(self, is_device_ordered: bool) -> None:  # noqa: FBT001 - reads as an assignment
        """Whether the reader holds records back until the device has passed them."""
        self._words32[_DEVICE_ORDERED // 4] = is_device_ordered

    @property
    def is_watched(self) -> bool:
        """Whether the reader looks often, so that it needs no waking."""
        return self._words32[_WATCHED // 4] != 0

    @property
    def progress(self) -> int:
        """The sequence number that the device wrote last."""
        return self._words32[PROGRESS_OFFSET // 4]

    @property
    def status(self) -> AgentStatus | None:
        """The status that the reader set last; None before the first, or while it is being written."""
        # Not a slice, which would outlive the memory where this hook is collected meanwhile.
        return decode_status(_STATUS_BLOCK.unpack_from(self.memory, _STATUS)[0])

    def close(self, *, keeps_header: bool = False, has_reader: Callable[[], bool] = lambda: True) -> None:
        """Give the memory back, but for what others still use. Later calls of all else raise ValueError.

        Args:
            keeps_header: Where a device may still write to it.
            has_reader: Whether anybody may still read the records; asked once they are not written any more.
        """
        self._words32.release()
        self._words64.release()
        self._mapping.close(num_kept=HEADER_BYTES if keeps_header else 0)
        self.is_closed = True
        try:
            if not has_reader():
                give_back_records(self.fd)
        finally:
            os.close(self.fd)


def give_back_records(fd: int) -> None:
    """Free the records of a memory that no process writes or reads any more, also while a device has its header.

    Args:
        fd: Of the memory.

    Raises:
        OSError: It cannot be made shorter.
    """
    os.ftruncate(fd, HEADER_BYTES)


class RingReader:
    """The agent's side.

    Args:
        fd: Of the memory.
        from_now: Pass over what was written, or could not be, before: all but the newest record, which may be the last.

    Attributes:
        lost: Records overwritten before they were read, or never written by the trainer.

    Raises:
        RingFormatError: The memory is not a ring of this version.
        OSError: The descriptor cannot be mapped.
    """

    def __init__(self, fd: int, *, from_now: bool = False) -> None:
        if os.fstat(fd).st_size != _FILE_BYTES:
            raise RingFormatError(f"the shared memory has {os.fstat(fd).st_size} bytes, expected {_FILE_BYTES}")
        self._memory = mmap.mmap(fd, _FILE_BYTES)
        magic, version, capacity, self.writer_pid = _IDENTITY.unpack_from(self._memory)
        if (magic, version, capacity) != (MAGIC, VERSION, CAPACITY):
            self._memory.close()
            raise RingFormatError(
                f"the shared memory says {magic!r} version {version} with {capacity} records, expected {MAGIC!r} "
                f"version {VERSION} with {CAPACITY}: trainer and agent must run the same installation"
            )
        self._next = max(1, self.head) if from_now else 1
        self._overwritten = 0
        self._num_dropped_before = self._num_dropped if from_now else 0
        self._reached = 0

    @property
    def head(self) -> int:
        """Sequence of the newest record."""
        return int(struct.unpack_from("<Q", self._memory, _HEAD)[0])

    @property
    def lost(self) -> int:
        """How many records will never be read."""
        return self._overwritten + self._num_dropped - self._num_dropped_before

    @property
    def _num_dropped(self) -> int:
        return int(struct.unpack_from("<Q", self._memory, _DROPPED)[0])

    @property
    def is_device_ordered(self) -> bool:
        """Whether the device writes how far it is."""
        return bool(struct.unpack_from("<I", self._memory, _DEVICE_ORDERED)[0])

    @property
    def is_behind(self) -> bool:
        """Whether there are records that ``read`` has not returned."""
        return self._next <= self.head

    def glance(self) -> bytes:
        """All words of trainer and device: while they stay as they are, there is nothing new."""
        return self._memory[_OF_TRAINER_AND_DEVICE]

    def set_watched(self, is_watched: bool) -> None:  # noqa: FBT001 - reads as an assignment
        """Tell the writer whether to ring. Look once more after saying that it must."""
        struct.pack_into("<I", self._memory, _WATCHED, is_watched)

    def set_status(self, status: AgentStatus) -> None:
        """Tell the writer how it goes."""
        self._memory[_STATUS : _STATUS + STATUS_BYTES] = encode_status(status)

    @property
    def reached(self) -> int:
        """Sequence of the newest boundary that the device has passed."""
        word = int(struct.unpack_from("<I", self._memory, PROGRESS_OFFSET)[0])
        head = self.head  # read after the word, so that it is no less
        # Writes on two streams may arrive in either order.
        self._reached = max(self._reached, head - ((head - word) & 0xFFFF_FFFF))
        return self._reached

    def read(self) -> list[Boundary]:
        """All whole records that were not read yet, oldest first."""
        records: list[Boundary] = []
        head = self.head
        while self._next <= head:
            if head - self._next >= CAPACITY:
                self._skip_to(head - CAPACITY + 1)
            offset = HEADER_BYTES + self._next % CAPACITY * RECORD_BYTES
            boundary = decode_record(self._memory[offset : offset + RECORD_BYTES])
            if boundary is None or boundary.sequence < self._next:
                newest = self.head
                if newest - self._next < CAPACITY:
                    break  # the head came into sight before the record did
                self._skip_to(newest - CAPACITY + 1)
            elif boundary.sequence > self._next:
                self._skip_to(boundary.sequence - CAPACITY + 1)
            else:
                records.append(boundary)
                self._next += 1
        return records

    def close(self) -> None:
        """Unmap the memory."""
        self._memory.close()

    def _skip_to(self, sequence: int) -> None:
        self._overwritten += sequence - self._next
        self._next = sequence
