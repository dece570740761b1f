"""The benchmark that plays measured workloads, on generated ones in their form."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "measured_workloads.py"
sys.path.insert(0, str(BENCHMARK.parent))

import measured_workloads  # noqa: E402

PP, MICROBATCHES, TRANSFER_S, BLOCKING_W = 4, 8, 0.02, 70.0
CLOCKS = (1410, 1320, 1230, 1140)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    out, error = io.StringIO(), io.StringIO()
    words = [str(BENCHMARK), *map(str, arguments)]
    with redirect_stdout(out), redirect_stderr(error), patch.object(sys, "argv", words):
        return subprocess.CompletedProcess(words, measured_workloads.main(), out.getvalue(), error.getvalue())


def commands(rank: int, forwards: list[int], backwards: list[int]) -> list[int]:
    """Clocks of the trainer's commands: what is not a computation has a clock that no computation has."""
    other, warm_ups = 0, PP - rank - 1
    listed: list[int] = []
    todo_f, todo_b = iter(forwards), iter(backwards)
    get = 2 if rank == PP - 1 else 1
    for _ in range(warm_ups):
        listed += [other] * get + [next(todo_f), other]
    for number in range(MICROBATCHES - warm_ups):
        listed += [other] * (number == 0 and rank > 0) + [other] * (rank in (0, PP - 1))
        listed += [next(todo_f)] + [other] * (rank < PP - 1) + [next(todo_b)] + [other] * (rank > 0)
    for _ in range(warm_ups):
        listed += [other, next(todo_b)] + [other] * (rank > 0)
    return [*listed, other, other, other]


def iteration_s(forward: list[list[float]], backward: list[list[float]]) -> float:
    """1F1B whose senders wait for their transfers, by ranks that take turns."""
    arrived: dict[tuple[int, str, int], float] = {(0, "F", m): 0.0 for m in range(MICROBATCHES)}
    arrived |= {(PP - 1, "B", m): 0.0 for m in range(MICROBATCHES)}
    free, done = [0.0] * PP, [0] * PP
    orders = []
    for rank in range(PP):
        warm_ups = PP - rank - 1
        steady = [(k, m) for i in range(MICROBATCHES - warm_ups) for k, m in (("F", warm_ups + i), ("B", i))]
        rest = [("B", m) for m in range(MICROBATCHES - warm_ups, MICROBATCHES)]
        orders.append([("F", m) for m in range(warm_ups)] + steady + rest)
    while any(done[rank] < len(orders[rank]) for rank in range(PP)):
        for rank in range(PP):
            if done[rank] == len(orders[rank]) or (rank, *orders[rank][done[rank]]) not in arrived:
                continue
            kind, microbatch = orders[rank][done[rank]]
            took = (forward if kind == "F" else backward)[rank][microbatch]
            free[rank] = max(free[rank], arrived[rank, kind, microbatch]) + took
            receiver = rank + (1 if kind == "F" else -1)
            if 0 <= receiver < PP:
                free[rank] += TRANSFER_S
                arrived[receiver, kind, microbatch] = free[rank]
            done[rank] += 1
    return max(free)


def generated(folder: Path, *, marker: bool, seed: int = 1) -> Path:
    """Plans 0 and 1 at the maximum clock, six more at others."""
    random = Random(seed)
    folder.mkdir(parents=True)
    for plan in range(8):
        clocks = [
            [CLOCKS[0] if plan < 2 or rank == PP - 1 else random.choice(CLOCKS[1:]) for _ in range(2 * MICROBATCHES)]
            for rank in range(PP)
        ]
        scheduled = [
            {"rank": rank, "power_states": commands(rank, clocks[rank][::2], clocks[rank][1::2])} for rank in range(PP)
        ]
        measured: list[dict[str, Any]] = []
        seconds: dict[str, list[list[float]]] = {}
        for kind, share, base in (("forward", slice(0, None, 2), 0.05), ("backward", slice(1, None, 2), 0.1)):
            seconds[kind] = [
                [base * (1 + rank / 10) * 1410 / clock for clock in clocks[rank][share]] for rank in range(PP)
            ]
        whole_s = iteration_s(seconds["forward"], seconds["backward"])
        for rank in range(PP):
            pairs = [*zip(seconds["forward"][rank], clocks[rank][::2], strict=True)]
            pairs += zip(seconds["backward"][rank], clocks[rank][1::2], strict=True)
            energy_j = sum(time_s * 300 * (clock / 1410) ** 2 for time_s, clock in pairs)
            energy_j += BLOCKING_W * (whole_s - sum(time_s for time_s, _ in pairs))
            breakdown = {kind: [[1e-5] * marker + seconds[kind][rank]] + [seconds[kind][rank]] * 3 for kind in seconds}
            measured.append(
                {
                    "rank": rank,
                    "iter_time": [2 * whole_s, *[whole_s * (1 + 1e-4 * random.random()) for _ in range(3)]],
                    "iter_energy": [2 * energy_j, *[energy_j * (1 + 1e-4 * random.random()) for _ in range(3)]],
                    "time_breakdown": breakdown | {"load": [[1e-6] * MICROBATCHES] * 4},
                    "energy_breakdown": {"load": [], "forward": [], "backward": []},
                }
            )
        (folder / f"{plan}.prof.json").write_text(json.dumps(measured))
        (folder / f"{plan}.sched.json").write_text(json.dumps(scheduled))
    return folder


def test_a_generated_workload_is_explained(tmp_path: Path) -> None:
    generated(tmp_path / "a100+one+pp4", marker=True)
    generated(tmp_path / "a100+two+pp4", marker=False, seed=2)
    (tmp_path / "a100+two+pp4" / "5.sched.json").unlink()
    (tmp_path / "a100+two+pp4" / "6.prof.json").write_text("[{")
    done = run(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout)["workloads"]
    assert (one["name"], two["name"]) == ("a100+one+pp4", "a100+two+pp4")
    assert (one["plans"], two["plans"]) == (8, 6)
    assert [text.split(":")[0] for text in two["left_out"]] == ["5", "6"]
    for found in (one, two):
        assert found["transfer_ms"] == pytest.approx(1e3 * TRANSFER_S, rel=0.01)
        assert found["time_error_worst_percent"] < 0.1
        assert found["energy_error_worst_percent"] < 2
        low, high = found["saving_interval_percent"]
        assert low <= found["saving_predicted_percent"] <= high
        assert abs(found["saving_predicted_percent"] - found["saving_measured_percent"]) < 2
        assert found["own_slowdown_percent"] <= found["slowdown_predicted_percent"] + 1e-9
        assert found["own_saving_percent"] > 0


def test_a_folder_that_is_named_twice_is_played_once(tmp_path: Path) -> None:
    one = generated(tmp_path / "one", marker=True)
    (tmp_path / "link").symlink_to(one)
    done = run(tmp_path, one, tmp_path / "link", tmp_path / "." / "one", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["workloads"]) == 1


def test_powers_of_a_few_plans_alone_leave_no_warning(tmp_path: Path) -> None:
    folder = generated(tmp_path / "few", marker=False, seed=2)
    for plan in range(3, 8):
        (folder / f"{plan}.prof.json").unlink()
    done = run(folder, "--json")
    assert done.returncode == 0
    assert not done.stderr


def test_a_folder_that_is_no_workload_is_refused(tmp_path: Path) -> None:
    short = generated(tmp_path / "short", marker=True)
    states = json.loads((short / "0.sched.json").read_text())
    states[1]["power_states"].pop()
    (short / "0.sched.json").write_text(json.dumps(states))
    (tmp_path / "empty").mkdir()
    for folder, seen in (
        (tmp_path / "empty", "saw no N.prof.json"),
        (tmp_path / "nowhere", "saw no N.prof.json"),
        (short, "expected one for each of the trainer's"),
    ):
        done = run(folder)
        assert done.returncode == 2
        assert seen in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.stress
def test_the_shared_workloads(shared_data: Path) -> None:
    done = run(shared_data / "sosp24" / "measured" / "a100+gpt3-xl+pp4+mbs8+nmb128", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["workloads"]
    assert found["time_error_median_percent"] <= 0.3
    assert found["time_error_following_median_percent"] <= 0.3
    own_ms = list(found["transfer_of_plan_ms"].values())
    assert sum(own_ms[:2]) / 2 == pytest.approx(found["transfer_ms"], rel=0.02)
    assert found["time_error_worst_percent"] <= 1
    assert found["energy_error_median_percent"] <= 0.5
    assert found["energy_error_worst_percent"] <= 2
    low, high = found["saving_interval_percent"]
    assert low <= found["saving_measured_percent"] <= high
    assert high - low <= 3
