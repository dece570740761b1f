"""Saved frontiers: all that lookups and replay need, so that loading one solves nothing.

A file is an npz archive of integer arrays and of ``header``, a JSON text as bytes: it says format and schema version,
and a digest of all the rest. Nothing is pickled. Nothing is believed either: what follows from other parts is computed
again when it is loaded, curves from what was measured and every plan's time and energy from its clocks.
"""

import hashlib
import json
import math
import os
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from perseus_dist.errors import FrontierFileError, PerseusError
from perseus_dist.planning.frontier.frontier import Bound, Frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, problem_of
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.input_file import InputFileError, read_input
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.profile.cost_curve import CostCurve, curve_of_choices
from perseus_dist.planning.profile.curve_doubt import MAX_ERROR_SHARE, CurveDoubt
from perseus_dist.planning.profile.power_bounds import MAX_GPU_POWER_W
from perseus_dist.planning.profile.profile_csv import MAX_CLOCK_MHZ, MAX_TIME_S
from perseus_dist.planning.schedule.dag import build_dag
from perseus_dist.planning.schedule.granularity import Granularity, sharing
from perseus_dist.planning.schedule.instruction import BETWEEN_ITERATIONS, LOAD, SENDS, TIMED_APART
from perseus_dist.planning.schedule.schedule import Exchange, Schedule, format_schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.units import PS_PER_S, UW_PER_W, IntArray

SCHEMA_VERSION = 3
COARSE_VERSION = 4  # of frontiers of plans with shared clocks: it says which instructions share one
LATENCY_VERSION = 5  # where the profile says how long changes to each clock take; plans may share clocks
EXCHANGE_VERSION = 6  # with transfers or loads: replayed by Schedule.exchange; those before, as Exchange.SENDER
BETWEEN_VERSION = 8  # with time between iterations
WAITING_VERSION = 7  # where Exchange.holds_up, with transfers or without; schedules before do not say so
_READ_VERSIONS = (
    2,
    SCHEMA_VERSION,
    COARSE_VERSION,
    LATENCY_VERSION,
    EXCHANGE_VERSION,
    WAITING_VERSION,
    BETWEEN_VERSION,
)  # bounds of version 2 are exact, and it does not say so

_FORMAT = "perseus-dist frontier"
_ZIP_MAGIC = b"PK\x03\x04"
_MAX_LATENCY_PS = 10 * PS_PER_S
_MAX_EXCESS_PS = int(MAX_TIME_S) * PS_PER_S
_MAX_BYTES = 1 << 30  # unpacked; that of 32,768 instructions has 25 MiB
# Attributes of cost curves, saved end to end, by what they have an entry for.
_CURVE_ARRAYS: dict[str, dict[str, DTypeLike]] = {
    "num_clocks": dict.fromkeys(("clocks_mhz", "durations_ps", "energies_uj", "effective_uj"), np.int64),
    "num_choices": {"choices": np.int32},
    "num_vertices": {"hull": np.int32, "hull_ps": np.int64, "slope_uw": np.int64},
}
_ARRAYS = {
    **dict.fromkeys(("blocking_uw", "bound_time_ps", "bound_effective_uj", "time_ps", "effective_uj"), np.int64),
    "num_changes": np.int32,
    "clock_indices": np.uint16,
    **{f"curve_{name}": dtype for names in _CURVE_ARRAYS.values() for name, dtype in names.items()},
}
_SHARES = ("time_share", "energy_share", "energy_common_share")  # of a curve's doubt
_DAMAGES = (  # what damaged bytes raise, by who reads them
    # zipfile: its own error, a struct or stream cut off, an impossible seek, unknown compression, a password
    *(zipfile.BadZipFile, struct.error, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError),
    # npy headers, which are Python literals: cut off, nested too deeply, of Python 2 (a warning, see _array_of)
    *(tokenize.TokenError, SyntaxError, MemoryError, RecursionError, Warning),
    # json, numpy and the reading below: not JSON, a part that is missing, of another type or too large
    *(ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError),
)

_Arrays = Mapping[str, NDArray[Any]]


def save_frontier(frontier: Frontier, path: str | os.PathLike[str]) -> None:
    """Write a frontier; ``load_frontier`` gives back the same to the last bit. The same frontier gives the same bytes.

    Raises:
        OutputError: The place cannot be written to; nothing is left half-written.
    """
    write_output(path, frontier_npz(frontier))


def frontier_npz(frontier: Frontier) -> bytes:
    """The bytes that ``save_frontier`` writes."""
    problem = frontier.problem
    header: dict[str, Any] = {
        "format": _FORMAT,
        "schema_version": SCHEMA_VERSION,
        "schedule": format_schedule(problem.dag.schedule),
        "curves": [(curve.stage, curve.kind) for curve in problem.curves],
        "num_clocks": [len(curve.clocks_mhz) for curve in problem.curves],
        "num_choices": [len(curve.choices) for curve in problem.curves],
        "num_vertices": [len(curve.hull) for curve in problem.curves],
        "tensor_parallel": problem.tensor_parallel,
        "switch_latency_ps": frontier.switch_latency_ps,
        "tolerance": frontier.bound.tolerance,
        "solve_seconds": frontier.solve_seconds,
        "realise_seconds": frontier.realise_seconds,
    }
    arrays: dict[str, NDArray[Any]] = {
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
    if frontier.granularity != Granularity.INSTRUCTION:
        header |= {"schema_version": COARSE_VERSION, "granularity": frontier.granularity}
    if any(curve.latencies_ps is not None for curve in problem.curves):
        latencies_ps = [None if one.latencies_ps is None else one.latencies_ps.tolist() for one in problem.curves]
        header |= {"schema_version": LATENCY_VERSION, "latencies_ps": latencies_ps}
    doubts = [_doubt_document(curve) for curve in problem.curves]
    if any(doubts):
        header["doubts"] = doubts
    if _exchanges(problem.dag.schedule, header["curves"]):
        header["schema_version"] = EXCHANGE_VERSION
    if problem.dag.schedule.exchange.holds_up:
        header["schema_version"] = WAITING_VERSION
    if any(curve.kind == BETWEEN_ITERATIONS for curve in problem.curves):
        header["schema_version"] = BETWEEN_VERSION
    header["sha256"] = _digest(header, arrays)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    data = BytesIO()
    np.savez_compressed(data, **arrays)  # type: ignore[arg-type]  # no array is called allow_pickle
    return data.getvalue()


def _exchanges(schedule: Schedule, curves: Iterable[tuple[int, str]]) -> bool:
    """Whether ``Schedule.exchange`` says when something begins, and is not what it was for all before."""
    return schedule.exchange != Exchange.SENDER and any(kind in SENDS or kind == LOAD for _, kind in curves)


def load_frontier(path: str | os.PathLike[str]) -> Frontier:
    """Read a frontier that ``save_frontier`` wrote.

    Raises:
        FrontierFileError: The file cannot be read, is damaged, is no saved frontier, or is of another schema.
    """
    try:
        data = read_input(path, max_bytes=_MAX_BYTES)
    except InputFileError as error:
        raise FrontierFileError(f"{error}; name a frontier.npz that perseus-dist plan wrote") from None
    return frontier_from_npz(data, path)


def frontier_from_npz(data: bytes, path: str | os.PathLike[str]) -> Frontier:
    """The inverse of ``frontier_npz``; messages name the path.

    Raises:
        FrontierFileError: The bytes are damaged, no saved frontier, or of a newer schema.
    """
    arrays = _read_archive(data, path)
    header = _read_header(path, arrays)
    try:
        _check(header.pop("sha256") == _digest(header, arrays))
        frontier = _frontier(header, arrays)
        _check_plans(frontier)
    except (*_DAMAGES, PerseusError) as error:
        raise FrontierFileError(
            f"{path}: saw a saved frontier whose parts do not fit together, expected it as perseus-dist wrote it; copy "
            "it again, or plan again"
        ) from error
    return frontier


def _digest(header: Mapping[str, Any], arrays: _Arrays) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in _ARRAYS:
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _read_archive(data: bytes, path: str | os.PathLike[str]) -> _Arrays:
    if not data.startswith(_ZIP_MAGIC):
        raise _foreign(path)
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = archive.infolist()
            names = [info.filename.removesuffix(".npy") for info in members]
            if "header.npy" not in archive.namelist():
                raise _foreign(path)
            _check(sum(info.file_size for info in members) <= _MAX_BYTES, len(set(names)) == len(names))
            return {name: _array_of(archive.read(info)) for name, info in zip(names, members, strict=True)}
    except FrontierFileError:
        raise
    except _DAMAGES as error:
        raise FrontierFileError(
            f"{path}: saw a damaged archive of {len(data)} bytes, expected a whole frontier.npz; copy it again, or "
            "plan again"
        ) from error


def _array_of(data: bytes) -> NDArray[Any]:
    """An npy file's array. numpy's own reader would make room for whatever shape the file claims."""
    stream = BytesIO(data)
    _check(np.lib.format.read_magic(stream) == (1, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    _check(not dtype.hasobject, not is_fortran, math.prod(shape) * dtype.itemsize == len(data) - stream.tell())
    return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape)


def _read_header(path: str | os.PathLike[str], arrays: _Arrays) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads(arrays["header"].tobytes())
        known, schema_version = header["format"] == _FORMAT, _whole(header, "schema_version", 0, 10**6)
    except _DAMAGES:
        known, schema_version = False, 0
    if not known:
        raise _foreign(path)
    if schema_version not in _READ_VERSIONS:
        raise FrontierFileError(
            f"{path}: saw schema version {schema_version}, expected {BETWEEN_VERSION}; upgrade perseus-dist to read "
            "it, or plan again with this version"
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
    clock_indices = _array(arrays, "clock_indices", (points, problem.num_instructions))
    num_clocks = np.array([len(curve.clocks_mhz) for curve in problem.curves])
    time_ps, effective_uj = (_array(arrays, name, (points,)) for name in ("time_ps", "effective_uj"))
    tolerance = header["tolerance"] if header["schema_version"] >= SCHEMA_VERSION else 0.0
    is_coarse = header["schema_version"] == COARSE_VERSION or "granularity" in header
    granularity = Granularity(header["granularity"]) if is_coarse else Granularity.INSTRUCTION
    _check((granularity != Granularity.INSTRUCTION) == is_coarse)
    _check(type(tolerance) is float and 0 <= tolerance < 1)
    bound = Bound(
        time_ps=_array(arrays, "bound_time_ps", (vertices,)),
        effective_uj=_array(arrays, "bound_effective_uj", (vertices,)),
        total_blocking_uw=problem.total_blocking_uw,
        tolerance=tolerance,
    )
    _check(points, vertices, (clock_indices < num_clocks[problem.curve_of]).all())
    for times, energies in ((time_ps, effective_uj), (bound.time_ps, bound.effective_uj)):
        _check(times[0] > 0, (np.diff(times) > 0).all(), (np.diff(energies) < 0).all())
    switch_latency_ps = _whole(header, "switch_latency_ps", 0, _MAX_LATENCY_PS)
    return Frontier(
        problem=problem,
        switch_latency_ps=switch_latency_ps,
        bound=bound,
        time_ps=time_ps,
        effective_uj=effective_uj,
        num_changes=_array(arrays, "num_changes", (points,)),
        clock_indices=clock_indices,
        baseline=replay_all_max(problem, switch_latency_ps=switch_latency_ps),
        solve_seconds=float(header["solve_seconds"]),
        realise_seconds=float(header["realise_seconds"]),
        granularity=granularity,
    )


def _check_plans(frontier: Frontier) -> None:
    """Every plan does what the file says of it, and none beats the bound; 20 us a plan of 192 instructions."""
    for point in range(len(frontier.time_ps)):
        execution = frontier.execution(point)
        _check(
            execution.time_ps == frontier.time_ps[point],
            execution.total_uj == frontier.total_uj[point],
            execution.changes.sum() == frontier.num_changes[point],
        )
    _check((frontier.gaps > -1e-6).all())
    clocks_mhz = frontier.problem.clocks_mhz(frontier.clock_indices)
    if frontier.granularity != Granularity.INSTRUCTION:
        groups = sharing(frontier.problem.dag.schedule, frontier.granularity)
        _check(all((clocks_mhz[:, group] == clocks_mhz[:, group[:1]]).all() for group in groups))


def _problem(header: Mapping[str, Any], arrays: _Arrays) -> PlanningProblem:
    schedule = parse_schedule(header["schedule"])
    if header["schema_version"] < EXCHANGE_VERSION and _exchanges(schedule, header["curves"]):
        schedule = replace(schedule, exchange=Exchange.SENDER)
    tensor_parallel = _whole(header, "tensor_parallel", 1, 10**9)
    blocking_uw = _array(arrays, "blocking_uw", (schedule.num_ranks,))
    _check((blocking_uw >= 0).all(), (blocking_uw <= MAX_GPU_POWER_W * UW_PER_W * tensor_parallel).all())
    columns = {name: _split(arrays, name, header[count]) for count, names in _CURVE_ARRAYS.items() for name in names}
    latencies_ps = header.get("latencies_ps", [None] * len(header["curves"]))
    doubts = header.get("doubts", [{}] * len(header["curves"]))  # files of before have none
    _check(len(latencies_ps) == len(header["curves"]) == len(doubts))
    curves = {}
    for index, (stage, kind) in enumerate(header["curves"]):
        arrays_of_curve: dict[str, Any] = {name: parts[index] for name, parts in columns.items()}
        saved = CostCurve(stage=stage, kind=kind, **arrays_of_curve)
        curve = _checked(saved, int(blocking_uw[schedule.rank_of_stage[stage]]))
        num_clocks = len(curve.clocks_mhz)
        curves[stage, kind] = replace(
            curve,
            latencies_ps=_latencies(latencies_ps[index], num_clocks),
            latencies_p90_ps=_latencies(doubts[index].get("latencies_p90_ps"), num_clocks),
            doubt=_doubt(doubts[index], num_clocks),
            p90_excess_ps=_excess_ps(doubts[index], kind),
            spread=_spread(doubts[index]),
        )
    dag = build_dag(schedule, {(stage, kind) for stage, kind in curves if kind in TIMED_APART})
    return problem_of(dag, curves, blocking_uw=blocking_uw, tensor_parallel=tensor_parallel)


def _excess_ps(document: Mapping[str, Any], kind: str) -> int:
    """[ps] A transfer's excess; other kinds have none."""
    return _whole({"p90_excess_ps": 0, **document}, "p90_excess_ps", 0, _MAX_EXCESS_PS if kind in SENDS else 0)


def _spread(document: Mapping[str, Any]) -> float:
    spread = document.get("spread", 0.0)  # files of before have none
    _check(type(spread) is float and 0 <= spread <= MAX_ERROR_SHARE)
    return float(spread)


def _latencies(values: list[Any] | None, num_clocks: int) -> IntArray | None:
    if values is None:
        return None
    _check(len(values) == num_clocks, all(type(one) is int and 0 <= one <= _MAX_LATENCY_PS for one in values))
    return np.array(values, dtype=np.int64)


def _doubt_document(curve: CostCurve) -> dict[str, Any]:
    """Errors of a curve; empty where none are known."""
    document: dict[str, Any] = {}
    if curve.doubt is not None:
        document |= {name: getattr(curve.doubt, name).tolist() for name in _SHARES}
        document["is_between"] = curve.doubt.is_between.tolist()
        document["is_from_samples"] = curve.doubt.is_from_samples
    if curve.latencies_p90_ps is not None:
        document["latencies_p90_ps"] = curve.latencies_p90_ps.tolist()
    if curve.p90_excess_ps:
        document["p90_excess_ps"] = curve.p90_excess_ps
    if curve.spread:
        document["spread"] = curve.spread
    return document


def _doubt(document: Mapping[str, Any], num_clocks: int) -> CurveDoubt | None:
    if "is_from_samples" not in document:
        return None
    shares = {name: document[name] for name in _SHARES}
    _check(type(document["is_from_samples"]) is bool, all(len(one) == num_clocks for one in shares.values()))
    _check(all(type(share) is float and 0 <= share <= MAX_ERROR_SHARE for one in shares.values() for share in one))
    is_between = document["is_between"]
    _check(len(is_between) == num_clocks, all(type(one) is bool for one in is_between))
    arrays = {name: np.array(one) for name, one in shares.items()}
    return CurveDoubt(**arrays, is_between=np.array(is_between), is_from_samples=document["is_from_samples"])


def _checked(saved: CostCurve, blocking_uw: int) -> CostCurve:
    """The curve of what was measured, if that is what was saved (ValueError)."""
    clocks_mhz, durations_ps, energies_uj = saved.clocks_mhz, saved.durations_ps, saved.energies_uj
    _check(
        len(clocks_mhz) and clocks_mhz[-1] >= 0 and clocks_mhz[0] <= MAX_CLOCK_MHZ and (np.diff(clocks_mhz) < 0).all(),
        (durations_ps > 0).all() and (energies_uj >= 0).all() and (energies_uj < 2**62).all(),
        (durations_ps <= MAX_TIME_S * PS_PER_S * 100).all(),
    )
    curve = curve_of_choices(
        stage=saved.stage,
        kind=saved.kind,
        clocks_mhz=clocks_mhz,
        durations_ps=durations_ps,
        energies_uj=energies_uj,
        blocking_uw=blocking_uw,
    )
    for names in _CURVE_ARRAYS.values():
        _check(*(np.array_equal(getattr(saved, name), getattr(curve, name)) for name in names))
    return curve


def _split(arrays: _Arrays, name: str, counts: Sequence[int]) -> list[NDArray[Any]]:
    """The parts of a curves' array, of the lengths given."""
    _check(all(type(count) is int and count > 0 for count in counts))
    return np.split(_array(arrays, f"curve_{name}", (sum(counts),)), np.cumsum(counts)[:-1])


def _array(arrays: _Arrays, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    array = arrays[name]
    _check(array.shape == shape, array.dtype == _ARRAYS[name])
    return array


def _whole(header: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = header[name]
    _check(type(value) is int and low <= value <= high)
    return int(value)


def _check(*conditions: object) -> None:
    if not all(conditions):
        raise ValueError("the parts of the file do not fit together")
