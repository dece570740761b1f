"""The ring: in order, nothing mis-read, what was overwritten is counted."""

import os
from collections.abc import Iterator

import pytest

from perseus_dist.boundaries.record import RECORD_BYTES, Event, encode_record
from perseus_dist.boundaries.ring import (
    CAPACITY,
    HEADER_BYTES,
    PROGRESS_OFFSET,
    VERSION,
    RingFormatError,
    RingReader,
    RingWriter,
)


@pytest.fixture
def writer() -> Iterator[RingWriter]:
    writer = RingWriter()
    yield writer
    writer.close()


@pytest.fixture
def reader(writer: RingWriter) -> Iterator[RingReader]:
    reader = RingReader(writer.fd)
    yield reader
    reader.close()


def write(writer: RingWriter, count: int = 1) -> None:
    for _ in range(count):
        writer.write(encode_record(writer.head + 1, Event.BEGIN, b"F", 0, 0, 0, 0))


def read_sequences(reader: RingReader) -> list[int]:
    return [boundary.sequence for boundary in reader.read()]


def test_records_arrive_once_and_in_order(writer: RingWriter, reader: RingReader) -> None:
    assert read_sequences(reader) == []
    write(writer, 3)
    assert read_sequences(reader) == [1, 2, 3]
    write(writer)
    assert read_sequences(reader) == [4]
    assert read_sequences(reader) == []
    assert reader.writer_pid == os.getpid()


def test_goes_round(writer: RingWriter, reader: RingReader) -> None:
    expected = 1
    for _ in range(5):
        write(writer, CAPACITY // 2 + 1)
        sequences = read_sequences(reader)
        assert sequences == list(range(expected, expected + CAPACITY // 2 + 1))
        expected = sequences[-1] + 1
    assert reader.lost == 0


def test_a_second_reader_begins_with_the_newest_record(writer: RingWriter) -> None:
    """It may be the last that there will be."""
    for num_before in (0, 5, CAPACITY + 3):
        write(writer, num_before)
        writer.count_dropped()
        late = RingReader(writer.fd, from_now=True)
        assert read_sequences(late) == ([writer.head] if writer.head else [])
        write(writer, 2)
        assert read_sequences(late) == [writer.head - 1, writer.head]
        assert late.lost == 0
        writer.count_dropped()
        assert late.lost == 1
        late.close()


def test_overwritten_records_are_counted(writer: RingWriter, reader: RingReader) -> None:
    write(writer, CAPACITY + 10)
    assert read_sequences(reader) == list(range(11, CAPACITY + 11))
    assert reader.lost == 10
    writer.count_dropped()
    assert reader.lost == 11


def test_record_that_is_not_whole_yet_is_waited_for(writer: RingWriter, reader: RingReader) -> None:
    write(writer, 3)
    start = HEADER_BYTES + 2 * RECORD_BYTES
    whole = bytes(writer.memory[start : start + RECORD_BYTES])
    writer.memory[start : start + 8] = bytes(8)
    assert read_sequences(reader) == [1]
    assert read_sequences(reader) == []
    writer.memory[start : start + RECORD_BYTES] = whole
    assert read_sequences(reader) == [2, 3]
    assert reader.lost == 0


def test_record_of_the_next_round_is_never_taken_for_this_one(writer: RingWriter, reader: RingReader) -> None:
    write(writer, 3)
    # The writer is just overwriting the first record; its head is not in sight yet.
    start = HEADER_BYTES + RECORD_BYTES
    writer.memory[start : start + RECORD_BYTES] = encode_record(CAPACITY + 1, Event.END, b"B", 0, 0, 0, 0)
    assert read_sequences(reader) == [2, 3]
    assert reader.lost == 1


def test_progress_is_told_across_the_wrap_of_its_32_bits(writer: RingWriter, reader: RingReader) -> None:
    assert reader.reached == 0
    writer.head = 2**32 - 3
    write(writer, 6)
    for reached in (2**32 - 1, 2**32, 2**32 + 2):
        writer.memory[PROGRESS_OFFSET : PROGRESS_OFFSET + 4] = (reached & 0xFFFF_FFFF).to_bytes(4, "little")
        assert reader.reached == reached


def test_progress_never_goes_back(writer: RingWriter, reader: RingReader) -> None:
    write(writer, 9)
    for word, reached in ((7, 7), (5, 7), (9, 9)):
        writer.memory[PROGRESS_OFFSET : PROGRESS_OFFSET + 4] = word.to_bytes(4, "little")
        assert reader.reached == reached


def test_other_memory_is_refused(writer: RingWriter) -> None:
    writer.memory[8:12] = (VERSION + 1).to_bytes(4, "little")
    with pytest.raises(RingFormatError, match="same installation"):
        RingReader(writer.fd)
    other = os.memfd_create("other")
    try:
        with pytest.raises(RingFormatError, match="0 bytes"):
            RingReader(other)
    finally:
        os.close(other)
