"""What the library's face refuses: by a ValueError of one line with the argument, what was seen and the remedy."""

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import perseus_dist
from perseus_dist import Frontier, Schedule
from perseus_dist.errors import FrontierFileError, OutputError

PROFILE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
SCHEDULE = Schedule.one_f_one_b(pp=4, microbatches=2)
FRONTIER = perseus_dist.plan(PROFILE, SCHEDULE, blocking_power_w=80)
PLAN = FRONTIER.fastest
TABLE = pa.table({"stage": [0], "time": [0.1]})

# By shown type: neither a number nor several of them.
NO_NUMBERS: tuple[tuple[object, str], ...] = (
    (None, "None"),
    ("80", "'80'"),
    (b"80", "a value of type bytes"),
    (True, "True"),
    (float("nan"), "nan"),
    (float("inf"), "inf"),
    (np.float64("nan"), r"np.float64\(nan\)|nan"),
    (-1, "-1"),
    (10**400, "a value of type int"),
    (Decimal("1.5"), "a value of type Decimal"),
    (1j, "a value of type complex"),
    ({}, "a value of type dict"),
    ({80}, "a value of type set"),
    (np.ones((1, 1)), "a value of type ndarray"),
    (TABLE, "a value of type Table"),
    (SCHEDULE, "a value of type Schedule"),
)
NO_PATHS: tuple[tuple[object, str], ...] = (
    (None, "None"),
    (5, "5"),
    ("", "''"),
    (b"profile.csv", "a value of type bytes"),
    ("a\0b", "'a.x00b'"),
    (TABLE, "a value of type Table"),
    (FRONTIER, "a value of type Frontier"),
    (["profile.csv"], "a value of type list"),
)


def refusal(call: Callable[[], Any]) -> str:
    """The one line that a call is refused with."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the type is what is tested; texts are, by callers
        call()
    assert isinstance(caught.value, perseus_dist.PerseusError)
    message = str(caught.value)
    assert "\n" not in message
    assert not re.search(r"(^|\s)--\w", message), "speaks of command-line options"
    return message


@pytest.mark.parametrize(("value", "seen"), NO_NUMBERS)
def test_what_is_no_number(value: Any, seen: str) -> None:
    calls: list[tuple[str, str, Callable[[], Any]]] = [
        ("blocking_power_w", "watts", lambda: perseus_dist.plan(PROFILE, SCHEDULE, blocking_power_w=value)),
        ("slowdowns", "a factor", lambda: perseus_dist.plan(PROFILE, SCHEDULE, blocking_power_w=80, slowdowns=value)),
        (
            "deadlines_s",
            "seconds",
            lambda: perseus_dist.plan(PROFILE, SCHEDULE, blocking_power_w=80, deadlines_s=value),
        ),
        (
            "tensor_parallel",
            "a whole number",
            lambda: perseus_dist.plan(PROFILE, SCHEDULE, blocking_power_w=80, tensor_parallel=value),
        ),
        ("pp", "a whole number", lambda: Schedule.one_f_one_b(pp=value, microbatches=2)),
        ("microbatches", "a whole number", lambda: Schedule.gpipe(pp=2, microbatches=value)),
        ("chunks", "a whole number", lambda: Schedule.interleaved(pp=2, microbatches=2, chunks=value)),
        ("pipelines", "a whole number", lambda: perseus_dist.emulate(FRONTIER, pipelines=value)),
        ("stragglers", "how many times", lambda: perseus_dist.emulate(FRONTIER, pipelines=2, stragglers=value)),
    ]
    optional: list[tuple[str, str, Callable[[], Any]]] = [
        (
            "switch_latency_s",
            "seconds",
            lambda: perseus_dist.plan(PROFILE, SCHEDULE, blocking_power_w=80, switch_latency_s=value),
        ),
        ("slowdown", "a factor", lambda: FRONTIER.at(slowdown=value)),
        ("deadline_s", "seconds", lambda: FRONTIER.at(deadline_s=value)),
        ("straggler_s", "seconds", lambda: FRONTIER.at(straggler_s=value)),
        ("slowdown", "a factor", lambda: perseus_dist.compare(FRONTIER, slowdown=value)),
        ("deadline_s", "seconds", lambda: perseus_dist.compare(FRONTIER, deadline_s=value)),
        (
            "microbatch_group_size",
            "a whole number",
            lambda: Schedule.interleaved(pp=2, microbatches=2, chunks=2, microbatch_group_size=value),
        ),
    ]
    for name, expected, call in calls if value is None else calls + optional:
        assert re.match(rf"{name}: saw ({seen}), expected {expected}", refusal(call)), name


@pytest.mark.parametrize(("value", "seen"), NO_PATHS)
def test_what_is_no_path(value: Any, seen: str) -> None:
    for name, expected, call in (
        ("path", "the path of a profile CSV", lambda: perseus_dist.read_profile(value)),
        ("profile", "a Profile or the path", lambda: perseus_dist.plan(value, SCHEDULE, blocking_power_w=80)),
        ("path", "a file's path, such as 'frontier.npz'", lambda: perseus_dist.load_frontier(value)),
        ("path", "a file's path, such as 'frontier.npz'", lambda: FRONTIER.save(value)),
        ("path", "a file's path, such as 'plan.json'", lambda: PLAN.save(value)),
        ("path", "a file's path, such as 'trace.json'", lambda: PLAN.save_trace(value)),
        ("path", "a file's path, such as 'orders.txt'", lambda: Schedule.read(value)),
        ("path", "a file's path, such as 'orders.txt'", lambda: SCHEDULE.save(value)),
        ("path", "a file's path, such as 'profile.csv'", lambda: perseus_dist.read_profile(PROFILE).save(value)),
    ):
        assert re.match(rf"{name}: saw {seen}, expected {expected}", refusal(call)), name


def test_a_data_frame_is_told_how_to_become_a_profile() -> None:
    class DataFrame:  # as pandas and polars have; neither is needed here
        def to_csv(self) -> None: ...

    message = refusal(lambda: perseus_dist.plan(DataFrame(), SCHEDULE, blocking_power_w=80))  # type: ignore[arg-type]
    assert message.startswith("profile: saw a value of type DataFrame, expected a path; give that of value.to_csv('pro")
    assert message.endswith("with the columns stage, instruction, frequency, time, energy")


@pytest.mark.parametrize("value", [None, "1f1b", "orders.txt", 4, Schedule, [["0F0"]], FRONTIER, TABLE])
def test_what_is_no_schedule_or_frontier(value: Any) -> None:
    message = refusal(lambda: perseus_dist.plan(PROFILE, value, blocking_power_w=80))
    assert re.match(
        r"schedule: saw .*, expected a Schedule, such as Schedule.one_f_one_b\(pp=4, microbatches=8\)", message
    )
    if isinstance(value, Frontier):
        return
    for call in (lambda: perseus_dist.compare(value), lambda: perseus_dist.emulate(value, pipelines=2)):
        assert re.match("frontier: saw .*, expected a Frontier; make one by plan", refusal(call))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (FRONTIER.at, "saw no argument, expected exactly one of slowdown, deadline_s, straggler_s; give one"),
        (lambda: FRONTIER.at(slowdown=1.1, deadline_s=2), "saw slowdown=1.1 and deadline_s=2, expected exactly one of"),
        (lambda: FRONTIER.at(slowdown=0.5), "slowdown=0.5: the deadline of .* cannot be met: the fastest plan takes"),
        (lambda: FRONTIER.at(deadline_s=0.1), "deadline_s=0.1: the deadline of 0.1 s cannot be met"),
        (lambda: FRONTIER.at(straggler_s=np.float64(0.1)), "straggler_s=0.1: the deadline of 0.1 s cannot be met"),
        (lambda: FRONTIER.at(slowdown=1e6), "slowdown: saw 1000000.0, expected a factor above 0 and up to "),
        (lambda: FRONTIER.at(deadline_s=1e6), "deadline_s: saw 1000000.0, expected seconds above 0 and up to 100000"),
        (lambda: perseus_dist.compare(FRONTIER, slowdown=0.5), "slowdown=0.5: the deadline of .* cannot be met"),
        (lambda: perseus_dist.compare(FRONTIER, deadline_s=0.1), "deadline_s=0.1: the deadline of .* cannot be met"),
        (
            lambda: perseus_dist.compare(FRONTIER, slowdown=2, deadline_s=3),
            "saw slowdown=2 and deadline_s=3, expected exactly one of slowdown, deadline_s",
        ),
        (
            lambda: perseus_dist.emulate(FRONTIER, pipelines=2, stragglers=[1.1, 0.9]),
            r"stragglers\[1\]: saw 0.9, expected",
        ),
        (lambda: FRONTIER.plot(chosen=1.05), "chosen: saw 1.05, expected a Plan, such as frontier.at"),  # type: ignore[arg-type]
        (lambda: FRONTIER.plot(ax="top"), "ax: saw 'top', expected matplotlib axes or None"),  # type: ignore[arg-type]
        (lambda: FRONTIER.plot(title=3), "title: saw 3, expected a text"),  # type: ignore[arg-type]
        (lambda: PLAN.plot(fig=3), "fig: saw 3, expected an empty matplotlib figure or None"),  # type: ignore[arg-type]
        (
            lambda: PLAN.plot(fig=FRONTIER.plot()),
            "fig: saw a figure with 1 axes, expected an empty matplotlib figure or None; call fig.clear",
        ),
        (lambda: PLAN.plot(title=None), "title: saw None, expected a text"),  # type: ignore[arg-type]
        (lambda: Frontier(3), "planned: saw 3, .* use plan or load_frontier"),  # type: ignore[arg-type]
        (lambda: perseus_dist.Plan(None), "planned: saw None, .* use Frontier.at"),  # type: ignore[arg-type]
        (lambda: PLAN.save("plan.svg"), r"path: saw 'plan.svg', expected a name that ends in .json; rename it"),
        (lambda: PLAN.save_trace("trace"), r"path: saw 'trace', expected a name that ends in .json; rename it"),
        (
            lambda: FRONTIER.save("frontier"),
            r"path: saw 'frontier', expected a name that ends in .npz or .csv; rename it",
        ),
    ],
)
def test_frontiers_and_plans(call: Callable[[], Any], message: str) -> None:
    assert re.match(message, refusal(call))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"blocking_power_w": [80, 81]},
            "blocking_power_w: saw 2 values, expected 1 or 4; give one for all, or one for",
        ),
        ({"blocking_power_w": []}, "blocking_power_w: saw 0 values, expected 1 or 4"),
        ({"blocking_power_w": [80, 80, None, 80]}, r"blocking_power_w\[2\]: saw None, expected watts from 0 to 10000"),
        ({"blocking_power_w": 80_000}, "blocking_power_w: saw 80000, expected watts from 0 to 10000"),
        ({"switch_latency_s": 12}, "switch_latency_s: saw 12, expected seconds from 0 to 10, such as 0.012"),
        ({"slowdowns": [1.05, "fast"]}, r"slowdowns\[1\]: saw 'fast', expected a factor"),
        ({"slowdowns": (1.05, 0.5)}, r"slowdowns\[1\]: the deadline of .* cannot be met: the fastest plan takes"),
        ({"deadlines_s": (0.1,)}, r"deadlines_s\[0\]: the deadline of 0.1 s cannot be met"),
        ({"progress": 1}, "progress: saw 1, expected a function of the phase and the share done, or None"),
        (
            {"profile": "nowhere.csv"},
            r"nowhere.csv: cannot be read \(No such file or directory\); name an existing profile",
        ),
        (
            {"schedule": Schedule.gpipe(pp=8, microbatches=2)},
            r".*gpu_model_pp4.csv: saw 4 stages, .*lower pp= or chunks=",
        ),
        (
            {"schedule": Schedule.from_text("0F0 0I0 0W0\n1F0 1B0\n2F0 2B0\n3F0 3B0")},
            ".*gpu_model_pp4.csv: stage 0 has backward, forward, expected backward_input too",
        ),
    ],
)
def test_plan(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"profile": PROFILE, "schedule": SCHEDULE, "blocking_power_w": 80} | arguments
    assert re.match(message, refusal(lambda: perseus_dist.plan(**given)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Schedule.interleaved(pp=4, microbatches=8, chunks=1),
            "Schedule.interleaved with pp=4 chunks=1: .* or use Schedule.one_f_one_b",
        ),
        (
            lambda: Schedule.interleaved(pp=4, microbatches=3, chunks=2),
            "microbatches=3 with pp=4: .* give microbatches=4",
        ),
        (
            lambda: Schedule.interleaved(pp=4, microbatches=8, chunks=2, microbatch_group_size=3),
            "microbatch_group_size=3: Megatron wants it from pp=4 to microbatches=8",
        ),
        (
            lambda: Schedule.interleaved(pp=4, microbatches=8, chunks=2, overlap_p2p="no"),  # type: ignore[arg-type]
            "overlap_p2p: saw 'no', expected True or False",
        ),
        (
            lambda: Schedule.gpipe(pp=10**5, microbatches=10**5),
            "Schedule.gpipe: saw 20000000000 instructions, expected at most 1048576; lower pp=, microbatches= or",
        ),
        (lambda: Schedule.from_text(None), "text: saw None, expected lines such as '0F0 0F1 0B0 0B1'"),  # type: ignore[arg-type]
        (lambda: Schedule.from_text(Path("a.txt")), "text: saw .*'a.txt'.*; for a file use Schedule.read"),  # type: ignore[arg-type]
        (lambda: Schedule.from_text(["0F0 0B0"]), "text: saw a value of type list"),  # type: ignore[arg-type]
        (lambda: Schedule.from_text(""), "text: no instructions: expected a line per pp_rank"),
        (lambda: Schedule.from_text("0F0 0X0"), "text: line 1, column 5: '0X0' is not an instruction"),
        (lambda: Schedule.from_text("0F0 0B0\n1F0"), r"text: pp_rank 1 \(line 2\): missing 1B0"),
        (lambda: Schedule.from_text("0B0 0F0"), "text: deadlock: pp_rank 0 .* waits at 0B0 for 0F0"),
        (
            lambda: Schedule.read("nowhere.txt"),
            r"nowhere.txt: cannot be read \(No such file or directory\); name a schedule file",
        ),
        (lambda: Schedule.read(PROFILE), ".*gpu_model_pp4.csv: line 1, column 1: 'stage' is not an instruction"),
        (lambda: Schedule(ranks=[["0F0"]]), "ranks: saw a value of type list, expected a tuple of tuples"),  # type: ignore[arg-type]
        (lambda: Schedule(ranks=(("0F0",),)), "ranks: saw .* for a pp_rank, .* use Schedule.from_text"),  # type: ignore[arg-type]
        (lambda: Schedule(ranks=(SCHEDULE.ranks[0][:1],)), "pp_rank 0: missing 0B0"),
    ],
)
def test_schedules(call: Callable[[], Any], message: str) -> None:
    assert re.match(message, refusal(call))


def test_files_that_are_no_frontier_and_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FrontierFileError, match="saw something else than a saved frontier"):
        perseus_dist.load_frontier(PROFILE)
    (tmp_path / "half.npz").write_bytes(b"PK\x03\x04 and no more")
    assert "saw a damaged archive of 16 bytes" in refusal(lambda: perseus_dist.load_frontier(tmp_path / "half.npz"))
    for save in (PLAN.save, PLAN.save_trace):
        with pytest.raises(OutputError, match="expected a file name in an existing, writable folder"):
            save(tmp_path / "missing" / "plan.json")
    assert list(tmp_path.iterdir()) == [tmp_path / "half.npz"]


def test_progress_that_returns_false_cancels_and_errors_in_it_come_through() -> None:
    schedule = Schedule.one_f_one_b(pp=4, microbatches=64)

    def fail(phase: str, done: float) -> bool:
        raise KeyError(phase, done)

    options: dict[str, Any] = {"blocking_power_w": 80, "switch_latency_s": 0.012}
    message = refusal(lambda: perseus_dist.plan(PROFILE, schedule, progress=lambda *_: False, **options))
    assert message == "planning was cancelled; nothing was written"
    with pytest.raises(KeyError, match=r"exact frontier|realised plans"):
        perseus_dist.plan(PROFILE, schedule, progress=fail, **options)


def test_a_number_that_is_too_long_to_be_written() -> None:
    assert refusal(lambda: FRONTIER.at(slowdown=10**5000)).startswith("slowdown: saw a value of type int, expected a")


def test_a_blocking_power_in_kilowatts() -> None:
    expected = "saw 0.08, expected 0, or watts from 1 on, such as 80"
    message = refusal(lambda: perseus_dist.plan(PROFILE, SCHEDULE, blocking_power_w=0.08))
    assert message == f"blocking_power_w: {expected}"
    message = refusal(lambda: perseus_dist.plan(PROFILE, SCHEDULE, blocking_power_w=[80, 80, 0.08, 80]))
    assert message == f"blocking_power_w[2]: {expected}"


def test_how_a_schedule_that_is_made_by_hand_exchanges() -> None:
    wrong: dict[str, tuple[object, ...]] = {"joint": (5, ["0F0"], {"0F0"}, None), "exchange": ([], None, "Serial")}
    for name, values in wrong.items():
        for value in values:
            given: dict[str, Any] = {"ranks": SCHEDULE.ranks, name: value}
            assert refusal(partial(Schedule, **given)).startswith(f"{name}: saw ")
    pairs = Schedule.interleaved(pp=2, microbatches=4, chunks=2, overlap_p2p=False)
    of_pairs: Any = set(pairs.joint)
    assert hash(Schedule(ranks=pairs.ranks, joint=of_pairs)) == hash(pairs)
