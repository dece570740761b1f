"""What the agent sees, and when, in host order and in device order. The device is a word of memory here."""

import os
import select
from collections.abc import Iterator

import pytest

from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.boundaries.record import RECORD_BYTES, Event, encode_record
from perseus_dist.boundaries.ring import HEADER_BYTES, PROGRESS_OFFSET, RingWriter


@pytest.fixture
def writer() -> Iterator[RingWriter]:
    writer = RingWriter()
    yield writer
    writer.close()


@pytest.fixture
def reader(writer: RingWriter) -> Iterator[BoundaryReader]:
    doorbell_fd = os.eventfd(0, os.EFD_NONBLOCK)
    reader = BoundaryReader(writer.fd, doorbell_fd)
    yield reader
    reader.close()
    os.close(doorbell_fd)


def write(writer: RingWriter, *events: Event) -> None:
    for event in events:
        sequence = writer.head + 1
        writer.write(encode_record(sequence, event, b"F", 0, 0, 0, sequence * 100))


def device_reaches(writer: RingWriter, sequence: int) -> None:
    writer.memory[PROGRESS_OFFSET : PROGRESS_OFFSET + 4] = sequence.to_bytes(4, "little")


def read(reader: BoundaryReader, now_ns: int) -> list[tuple[int, int]]:
    return [(passed.boundary.sequence, passed.time_ns) for passed in reader.read(now_ns)]


def test_host_order_passes_everything_at_the_trainers_time(writer: RingWriter, reader: BoundaryReader) -> None:
    write(writer, Event.BEGIN, Event.END)
    assert not reader.device_ordered
    assert read(reader, 9_999) == [(1, 100), (2, 200)]
    assert reader.pending == 0


def test_there_is_news_until_it_was_read(writer: RingWriter, reader: BoundaryReader) -> None:
    read(reader, 0)
    assert not reader.has_news()
    write(writer, Event.BEGIN)
    assert reader.has_news()
    assert read(reader, 0) == [(1, 100)]
    assert not reader.has_news()
    writer.count_dropped()
    assert reader.has_news()
    read(reader, 0)
    writer.set_device_ordered(True)
    assert reader.has_news()
    write(writer, Event.BEGIN)
    read(reader, 0)
    assert (reader.pending, reader.has_news()) == (1, False)  # nothing to read before the device moves
    device_reaches(writer, 2)
    assert reader.has_news()
    assert read(reader, 2_000) == [(2, 2_000)]


def test_a_record_that_was_not_whole_stays_news(writer: RingWriter, reader: BoundaryReader) -> None:
    write(writer, Event.BEGIN)
    place = slice(HEADER_BYTES + RECORD_BYTES, HEADER_BYTES + 2 * RECORD_BYTES)
    whole, writer.memory[place] = bytes(writer.memory[place]), bytes(RECORD_BYTES)  # the head came into sight first
    assert read(reader, 0) == []
    assert reader.has_news()
    writer.memory[place] = whole
    assert read(reader, 0) == [(1, 100)]


def test_device_order_holds_back_what_the_device_has_not_reached(writer: RingWriter, reader: BoundaryReader) -> None:
    writer.set_device_ordered(True)
    write(writer, Event.BEGIN, Event.END, Event.BEGIN)
    assert reader.device_ordered
    assert read(reader, 1_000) == []
    assert reader.pending == 3
    device_reaches(writer, 2)
    assert read(reader, 2_000) == [(1, 2_000), (2, 2_000)]
    assert reader.pending == 1
    device_reaches(writer, 3)
    assert read(reader, 3_000) == [(3, 3_000)]


def test_what_the_host_alone_writes_waits_for_nothing_but_its_turn(writer: RingWriter, reader: BoundaryReader) -> None:
    writer.set_device_ordered(True)
    write(writer, Event.END, Event.TIMING, Event.WORK, Event.CLOSE)
    assert read(reader, 1_000) == []
    device_reaches(writer, 1)
    assert read(reader, 2_000) == [(1, 2_000), (2, 200), (3, 300), (4, 400)]


def test_back_in_host_order_nothing_waits_any_more(writer: RingWriter, reader: BoundaryReader) -> None:
    writer.set_device_ordered(True)
    write(writer, Event.BEGIN, Event.END)
    assert read(reader, 1_000) == []
    writer.set_device_ordered(False)
    assert read(reader, 2_000) == [(1, 100), (2, 200)]


def test_reading_silences_the_doorbell(writer: RingWriter, reader: BoundaryReader) -> None:
    for _ in range(3):
        os.eventfd_write(reader.doorbell_fileno, 1)
    assert select.select([reader.doorbell_fileno], [], [], 0)[0]
    write(writer, Event.BEGIN)
    assert read(reader, 0) == [(1, 100)]
    assert not select.select([reader.doorbell_fileno], [], [], 0)[0]
