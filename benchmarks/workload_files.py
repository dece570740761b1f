"""The measured workloads of the Perseus artifact, from their files. ``measured_workloads.py`` says what for."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perseus_dist.errors import PerseusError
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule import one_f_one_b

Order = tuple[tuple[str, int], ...]  # kind and microbatch, in execution order
Array = NDArray[np.float64]

_NAME = re.compile(r"(\d{1,6})\.prof\.json")
_KEYS = {Kind.FORWARD: "forward", Kind.BACKWARD: "backward"}


class WorkloadError(PerseusError):
    """A folder is no workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What was measured under every plan; warm-up iterations are left out.

    Attributes:
        name: Of its folder.
        numbers: (num_plans) ascending.
        left_out: Plans that lack one of their files, or have no whole iteration.
        order: (pp) computations of each rank.
        clocks_mhz: (num_plans, pp, num_computations) in that order.
        seconds: (num_plans, pp), by kind (num_iterations, microbatches) [s].
        loads: (num_plans, pp, num_iterations, microbatches) [s].
        iteration_s: (num_plans) (num_iterations) [s] of the slowest rank.
        iteration_j: (num_plans) (num_iterations) [J] of all ranks.
        rank_j: (num_plans) (pp, num_iterations) [J].
        load_s: (pp) [s] mean time to load a microbatch.
        times: By stage and kind, clocks [MHz], descending, and mean times [s] over all plans, each (num_clocks).
        time_spreads: Likewise, how many plans ran the clock and the standard deviation [s] of their mean times, NaN of
            one plan; each (num_clocks).
    """

    name: str
    numbers: tuple[int, ...]
    left_out: tuple[str, ...]
    order: tuple[Order, ...]
    clocks_mhz: Sequence[Sequence[Sequence[int]]]
    seconds: Sequence[Sequence[dict[str, Array]]]
    loads: Sequence[Sequence[Array]]
    iteration_s: Sequence[Array]
    iteration_j: Sequence[Array]
    rank_j: Sequence[Array]
    load_s: Array = field(init=False)
    times: dict[tuple[int, str], tuple[NDArray[np.int64], Array]] = field(init=False)
    time_spreads: dict[tuple[int, str], tuple[NDArray[np.int64], Array]] = field(init=False)

    def __post_init__(self) -> None:
        load_s = [np.mean([of_plan[rank].mean() for of_plan in self.loads]) for rank in range(self.pp)]
        object.__setattr__(self, "load_s", np.array(load_s))
        samples = {(stage, str(kind)): self._samples(stage, kind) for stage in range(self.pp) for kind in _KEYS}
        object.__setattr__(self, "times", {key: _mean_times(of_clock) for key, of_clock in samples.items()})
        object.__setattr__(self, "time_spreads", {key: _time_spreads(of_clock) for key, of_clock in samples.items()})

    @property
    def pp(self) -> int:
        """Stages."""
        return len(self.order)

    def is_all_max(self, plan: int) -> bool:
        """Whether every computation runs at the highest clock of any plan."""
        highest = max(clock for of_plan in self.clocks_mhz for clocks in of_plan for clock in clocks)
        return all(clock == highest for clocks in self.clocks_mhz[plan] for clock in clocks)

    def clocks_of(self, plan: int, stage: int, kind: str) -> NDArray[np.int64]:
        """(microbatches) [MHz] of a kind's computations, by microbatch."""
        found = [
            (microbatch, clock)
            for (of_kind, microbatch), clock in zip(self.order[stage], self.clocks_mhz[plan][stage], strict=True)
            if of_kind == kind
        ]
        return np.array([clock for _, clock in sorted(found)], dtype=np.int64)

    def _samples(self, stage: int, kind: str) -> dict[int, list[Array]]:
        """By clock [MHz], times [s] of each plan that ran it."""
        samples: dict[int, list[Array]] = defaultdict(list)
        for plan in range(len(self.numbers)):
            seconds, clocks = self.seconds[plan][stage][kind], self.clocks_of(plan, stage, kind)
            for clock in np.unique(clocks).tolist():
                samples[clock].append(seconds[:, clocks == clock].ravel())
        return samples


def _mean_times(samples: dict[int, list[Array]]) -> tuple[NDArray[np.int64], Array]:
    clocks_mhz = sorted(samples, reverse=True)
    means_s = np.array([np.concatenate(samples[clock]).mean() for clock in clocks_mhz])
    return np.array(clocks_mhz, dtype=np.int64), means_s


def _time_spreads(samples: dict[int, list[Array]]) -> tuple[NDArray[np.int64], Array]:
    of_plans = [[float(times.mean()) for times in samples[clock]] for clock in sorted(samples, reverse=True)]
    spreads_s = [float(np.std(means, ddof=1)) if len(means) > 1 else np.nan for means in of_plans]
    return np.array([len(means) for means in of_plans], dtype=np.int64), np.array(spreads_s)


def folders_of(folders: Iterable[Path]) -> list[Path]:
    """Folders that hold plans, those inside of the ones named among them, each once.

    Raises:
        WorkloadError: One holds none.
    """
    found: list[Path] = []
    for folder in folders:
        inner = [folder, *sorted(folder.iterdir())] if folder.is_dir() else []
        holding = [one for one in inner if one.is_dir() and any(_NAME.fullmatch(file.name) for file in one.iterdir())]
        if not holding:
            raise WorkloadError(f"{folder}: saw no N.prof.json, expected a workload's folder; name another")
        for one in holding:
            if not any(one.samefile(other) for other in found):
                found.append(one)
    return found


def read_workload(folder: Path) -> Workload:
    """All plans of a folder.

    Raises:
        WorkloadError: No two plans can be read, or they are not of one 1F1B pipeline.
    """
    matches = [_NAME.fullmatch(file.name) for file in folder.iterdir()]
    plans, left_out = [], []
    for number in sorted(int(match[1]) for match in matches if match):
        try:
            plans.append((number, *_read_plan(folder, number)))
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            left_out.append(f"{number}: {type(error).__name__}: {error}"[:200])
    if len(plans) < 2:
        why = f" ({left_out[0]})" if left_out else ""
        raise WorkloadError(f"{folder}: saw {len(plans)} whole plans, expected 2 or more{why}; copy the folder again")
    shapes = {(len(measured), measured[0]["forward"].shape[1]) for _, measured, _ in plans}
    if len(shapes) > 1:
        raise WorkloadError(f"{folder}: saw plans of {len(shapes)} sizes, expected one pipeline's; separate them")
    ((pp, microbatches),) = shapes
    order = tuple(
        tuple((i.kind, i.microbatch) for i in ranks) for ranks in one_f_one_b(pp=pp, microbatches=microbatches).ranks
    )
    try:
        clocks_mhz = [
            [[states[index] for index in commands_of(rank, pp, microbatches, len(states))] for rank, states in each]
            for each in (list(enumerate(states)) for _, _, states in plans)
        ]
    except ValueError as error:
        raise WorkloadError(f"{folder}: {error}") from None
    rank_j = [np.array([one["energy"] for one in measured]) for _, measured, _ in plans]
    return Workload(
        name=folder.resolve().name,
        numbers=tuple(number for number, _, _ in plans),
        left_out=tuple(left_out),
        order=order,
        clocks_mhz=clocks_mhz,
        seconds=[[{kind: one[key] for kind, key in _KEYS.items()} for one in measured] for _, measured, _ in plans],
        loads=[[one["load"] for one in measured] for _, measured, _ in plans],
        iteration_s=[np.array([one["time"] for one in measured]).max(axis=0) for _, measured, _ in plans],
        iteration_j=[energies.sum(axis=0) for energies in rank_j],
        rank_j=rank_j,
    )


def commands_of(rank: int, pp: int, microbatches: int, num_commands: int) -> list[int]:
    """Where the computations of a rank stand among its commands, in execution order.

    Raises:
        ValueError: The number of commands is another one than the trainer's.
    """
    first, last, warm_ups = rank == 0, rank == pp - 1, min(pp - rank - 1, microbatches)
    commands: list[str] = []
    get = ["load"] if first else ["recv", "load"] if last else ["recv"]
    for _ in range(warm_ups):
        commands += [*get, "compute", "send"]
    steady = microbatches - warm_ups
    for number in range(steady):
        if number == 0 and not first:
            commands.append("recv")
        commands += ["load"] * (first or last) + ["compute"] + ["exchange"] * (not last)
        commands += ["compute"] + ["exchange"] * (not first)
    for _ in range(warm_ups):
        commands += ["recv", "compute", *(["send"] * (not first))]
    commands += ["reduce tied", "reduce", "step"]
    if len(commands) != num_commands:
        raise ValueError(
            f"rank {rank} of {pp} with {microbatches} microbatches: saw {num_commands} clocks, expected one for each "
            f"of the trainer's {len(commands)} commands"
        )
    return [index for index, command in enumerate(commands) if command == "compute"]


def _read_plan(folder: Path, number: int) -> tuple[list[dict[str, Array]], list[list[int]]]:
    """What every rank measured, by iteration without the first, and the clocks of its commands."""
    measured = sorted(_json(folder / f"{number}.prof.json"), key=lambda rank: rank["rank"])
    planned = sorted(_json(folder / f"{number}.sched.json"), key=lambda rank: rank["rank"])
    ranks = range(len(measured))
    if [rank["rank"] for rank in measured] != list(ranks) or [rank["rank"] for rank in planned] != list(ranks):
        raise ValueError("its ranks are not 0, 1, 2, ... in both files")
    found = []
    for rank in measured:
        parts = rank["time_breakdown"]
        microbatches = min(len(part) for part in parts["forward"])
        iterations = range(1, min(len(rank["iter_time"]), len(parts["forward"])))
        if not iterations or not microbatches:
            raise ValueError("it has no iteration after the warm-up")
        # A marker may stand before the calls of an iteration. A rank loads once or more for each microbatch.
        one = {key: np.array([parts[key][i][-microbatches:] for i in iterations]) for key in _KEYS.values()}
        loaded = parts.get("load") or [[]] * (1 + len(iterations))
        loads = np.array([loaded[i] for i in iterations])
        one["load"] = loads.reshape(len(iterations), microbatches, -1).sum(axis=2)
        one["time"], one["energy"] = (np.array(rank[key], dtype=float)[1:][: len(iterations)] for key in _TOTALS)
        if not all(np.isfinite(values).all() and (values >= 0).all() for values in one.values()):
            raise ValueError("a time or energy is no number from 0 up")
        found.append(one)
    fewest = min(len(one["time"]) for one in found)
    return [{key: values[:fewest] for key, values in one.items()} for one in found], [
        [int(clock) for clock in rank["power_states"]] for rank in planned
    ]


_TOTALS = ("iter_time", "iter_energy")


def _json(path: Path) -> Any:
    return json.loads(path.read_text())
