"""Saved frontiers: all that lookups and replay need, so that loading one solves nothing.

A file is an npz archive of integer arrays and of ``header``, a JSON text as bytes: it says format and schema version,
and is looked at before anything else. Nothing is pickled.
"""

import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from perseus_dist.errors import FrontierFileError, ScheduleError
from perseus_dist.planning.cost_curve import CostCurve
from perseus_dist.planning.dag import build_dag
from perseus_dist.planning.frontier import Bound, Frontier
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.problem import PlanningProblem, problem_of
from perseus_dist.planning.replay import replay_all_max
from perseus_dist.planning.schedule import format_schedule
from perseus_dist.planning.schedule_text import parse_schedule

SCHEMA_VERSION = 1

_FORMAT = "perseus-dist frontier"
_ZIP_MAGIC = b"PK\x03\x04"
# Attributes of cost curves, saved end to end, by what they have an entry for.
_CURVE_ARRAYS: dict[str, dict[str, DTypeLike]] = {
    "num_clocks": dict.fromkeys(("clocks_mhz", "durations_ps", "energies_uj", "effective_uj"), np.int64),
    "num_choices": {"choices": np.int32},
    "num_vertices": {"hull": np.int32, "hull_ps": np.int64, "slope_uw": np.int64},
}

_Arrays = Mapping[str, NDArray[Any]]


def save_frontier(frontier: Frontier, path: str | os.PathLike[str]) -> None:
    """Write a frontier; ``load_frontier`` gives back the same to the last bit. The same frontier gives the same bytes.

    Raises:
        OutputError: The place cannot be written to; nothing is left half-written.
    """
    write_output(path, frontier_npz(frontier))


def frontier_npz(frontier: Frontier) -> bytes:
    """What ``save_frontier`` writes."""
    problem = frontier.problem
    header = {
        "format": _FORMAT,
        "schema_version": SCHEMA_VERSION,
        "schedule": format_schedule(problem.dag.schedule),
        "curves": [(curve.stage, curve.kind) for curve in problem.curves],
        "num_clocks": [len(curve.clocks_mhz) for curve in problem.curves],
        "num_choices": [len(curve.choices) for curve in problem.curves],
        "num_vertices": [len(curve.hull) for curve in problem.curves],
        "tensor_parallel": problem.tensor_parallel,
        "switch_latency_ps": frontier.switch_latency_ps,
        "solve_seconds": frontier.solve_seconds,
        "realise_seconds": frontier.realise_seconds,
    }
    arrays: dict[str, NDArray[Any]] = {
        "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        "blocking_uw": problem.blocking_uw,
        "bound_time_ps": frontier.bound.time_ps,
        "bound_effective_uj": frontier.bound.effective_uj,
        "time_ps": frontier.time_ps,
        "effective_uj": frontier.effective_uj,
        "num_changes": frontier.num_changes,
        "clock_indices": frontier.clock_indices,
    }
    for names in _CURVE_ARRAYS.values():
        for name in names:
            arrays[f"curve_{name}"] = np.concatenate([getattr(curve, name) for curve in problem.curves])
    data = BytesIO()
    np.savez_compressed(data, **arrays)  # type: ignore[arg-type]  # no array is called allow_pickle
    return data.getvalue()


def load_frontier(path: str | os.PathLike[str]) -> Frontier:
    """Read a frontier that ``save_frontier`` wrote.

    Raises:
        FrontierFileError: The file cannot be read, is damaged, is no saved frontier, or is of a newer schema.
    """
    arrays = _read_archive(path)
    header = _read_header(path, arrays)
    try:
        return _frontier(header, arrays)
    except (KeyError, TypeError, ValueError, ScheduleError) as error:
        raise FrontierFileError(
            f"{path}: saw a saved frontier whose parts do not fit together, expected it as perseus-dist wrote it; copy "
            "it again, or plan again"
        ) from error


def _read_archive(path: str | os.PathLike[str]) -> _Arrays:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise FrontierFileError(
            f"{path}: cannot be read ({error.strerror}); name a frontier.npz that perseus-dist plan wrote"
        ) from None
    if not data.startswith(_ZIP_MAGIC):
        raise _foreign(path)
    try:
        with np.load(BytesIO(data), allow_pickle=False) as archive:
            members = {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, OSError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise FrontierFileError(
            f"{path}: saw a damaged archive of {len(data)} bytes, expected a whole frontier.npz; copy it again, or "
            "plan again"
        ) from error
    return {name: member for name, member in members.items() if isinstance(member, np.ndarray)}


def _read_header(path: str | os.PathLike[str], arrays: _Arrays) -> Mapping[str, Any]:
    try:
        header: dict[str, Any] = json.loads(arrays["header"].tobytes())
        known, schema_version = header["format"] == _FORMAT, int(header["schema_version"])
    except (KeyError, TypeError, ValueError):
        known, schema_version = False, 0
    if not known:
        raise _foreign(path)
    if schema_version != SCHEMA_VERSION:
        raise FrontierFileError(
            f"{path}: saw schema version {schema_version}, expected {SCHEMA_VERSION}; upgrade perseus-dist to read it, "
            "or plan again with this version"
        )
    return header


def _foreign(path: str | os.PathLike[str]) -> FrontierFileError:
    return FrontierFileError(
        f"{path}: saw something else than a saved frontier; name a frontier.npz that perseus-dist plan wrote"
    )


def _frontier(header: Mapping[str, Any], arrays: _Arrays) -> Frontier:
    """Put the parts together. The solver trusts every index, so that all are checked here (ValueError)."""
    problem = _problem(header, arrays)
    points, vertices = len(arrays["time_ps"]), len(arrays["bound_time_ps"])
    clock_indices = _array(arrays, "clock_indices", (points, problem.num_instructions), np.uint16)
    num_clocks = np.array([len(curve.clocks_mhz) for curve in problem.curves])
    time_ps = _array(arrays, "time_ps", (points,))
    _check(points, vertices, (np.diff(time_ps) > 0).all(), (clock_indices < num_clocks[problem.curve_of]).all())
    return Frontier(
        problem=problem,
        switch_latency_ps=int(header["switch_latency_ps"]),
        bound=Bound(
            time_ps=_array(arrays, "bound_time_ps", (vertices,)),
            effective_uj=_array(arrays, "bound_effective_uj", (vertices,)),
            total_blocking_uw=problem.total_blocking_uw,
        ),
        time_ps=time_ps,
        effective_uj=_array(arrays, "effective_uj", (points,)),
        num_changes=_array(arrays, "num_changes", (points,), np.int32),
        clock_indices=clock_indices,
        baseline=replay_all_max(problem),
        solve_seconds=float(header["solve_seconds"]),
        realise_seconds=float(header["realise_seconds"]),
    )


def _problem(header: Mapping[str, Any], arrays: _Arrays) -> PlanningProblem:
    schedule = parse_schedule(header["schedule"])
    columns = {
        name: _split(arrays, name, header[count], dtype)
        for count, names in _CURVE_ARRAYS.items()
        for name, dtype in names.items()
    }
    curves = {}
    for index, (stage, kind) in enumerate(header["curves"]):
        curve = CostCurve(stage=stage, kind=kind, **{name: parts[index] for name, parts in columns.items()})
        for indices in (curve.choices, curve.hull):
            _check(len(indices), (indices >= 0).all(), (indices < len(curve.clocks_mhz)).all())
        curves[stage, kind] = curve
    return problem_of(
        build_dag(schedule),
        curves,
        blocking_uw=_array(arrays, "blocking_uw", (schedule.num_ranks,)),
        tensor_parallel=int(header["tensor_parallel"]),
    )


def _split(arrays: _Arrays, name: str, counts: Sequence[int], dtype: DTypeLike) -> list[NDArray[Any]]:
    """The parts of a curves' array, of the lengths given."""
    return np.split(_array(arrays, f"curve_{name}", (sum(counts),), dtype), np.cumsum(counts)[:-1])


def _array(arrays: _Arrays, name: str, shape: tuple[int, ...], dtype: DTypeLike = np.int64) -> NDArray[Any]:
    array = arrays[name]
    _check(array.shape == shape, array.dtype == dtype)
    return array


def _check(*conditions: object) -> None:
    if not all(conditions):
        raise ValueError("the parts of the file do not fit together")
