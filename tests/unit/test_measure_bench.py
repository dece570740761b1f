"""Which of several tries of a block counts."""

from collections.abc import Iterator

from perseus_dist.measure.bench.bench import Block, best_block


def block(power_se_w: float) -> Block:
    return Block(
        kind="F",
        begin_ns=0,
        end_ns=1,
        times_s=(0.1, 0.1),
        power_w=400.0,
        power_se_w=power_se_w,
        clock_mhz=1410,
        event_reasons=0,
        temperature_c=None,
    )


def begun(tries: list[Block | None], log: list[Block | None]) -> Iterator[Block | None]:
    for one in tries:
        log.append(one)
        yield one


def test_the_first_well_known_power_ends_the_tries() -> None:
    good = block(1.9)
    log: list[Block | None] = []
    assert best_block(begun([None, block(2.1), good, block(0.1)], log)) is good
    assert len(log) == 3


def test_without_one_the_best_known_power_counts() -> None:
    best = block(3.0)
    assert best_block([block(9.0), best, None, block(3.1)]) is best


def test_without_any_power_there_is_no_block() -> None:
    assert best_block([None, None, None]) is None
