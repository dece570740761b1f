"""Boundary records: exact round trips, and torn ones are seen."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.boundaries.record import RECORD_BYTES, Boundary, Event, decode_record, encode_record

KINDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=16)
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(
    boundary=st.builds(
        Boundary,
        sequence=st.integers(0, 2**64 - 1),
        event=st.sampled_from(Event),
        kind=KINDS,
        chunk=st.integers(-(2**15), 2**15 - 1),
        microbatch=st.integers(-(2**31), 2**31 - 1),
        iteration=st.integers(-(2**31), 2**31 - 1),
        host_ns=INT64,
        device_ns=INT64,
        timed_sequence=st.integers(0, 2**64 - 1),
    )
)
def test_round_trip(boundary: Boundary) -> None:
    sequence, event, kind, *numbers = boundary
    record = encode_record(sequence, event, kind.encode(), *numbers)
    assert len(record) == RECORD_BYTES
    assert decode_record(record) == boundary


@pytest.mark.parametrize("num_new_bytes", range(1, RECORD_BYTES))
def test_half_written_record_is_no_record(num_new_bytes: int) -> None:
    old = encode_record(1, Event.BEGIN, b"F", 0, 0, 0, 1_000_000_007)
    new = encode_record(16385, Event.END, b"B", 1, 1, 1, 2_000_000_011)
    torn = new[:num_new_bytes] + old[num_new_bytes:]
    assert torn in (old, new) or decode_record(torn) is None


def test_untouched_memory_is_no_record() -> None:
    assert decode_record(bytes(RECORD_BYTES)) is None


def test_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(struct.error):
        encode_record(1, Event.BEGIN, b"F", 2**15, 0, 0, 0)
