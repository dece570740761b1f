"""The stages of a new shape, from what was measured of stages of other shapes.

A stage that was measured is taken as it is. Of another one with a known number of layers, times and energies follow
from a stage of the same role (first, last, neither or both) with the nearest number of layers: each layer more or less
adds what a layer takes, which stages that are neither first nor last tell, since they hold nothing but layers. By how
much those differ from each other is how sure an estimate is; where they differ much, layers are not alike, and nothing
is estimated.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from perseus_dist.planner.shapes.stage import MeasuredStage, StageWork, computes_alike, is_same_work
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE, OVERLAPPED_FORWARD, SENDS, Kind, profile_name

if TYPE_CHECKING:
    from perseus_dist.messages.from_agent import Sample

_COMPUTATIONS = frozenset(Kind)
_NOT_NEEDED = SENDS | {OVERLAPPED_FORWARD}
_LEAST_DOUBT = 0.01  # of a layer's time, where stages between first and last agree, or there is one
_MAX_DOUBT = 0.05  # above it, layers are not alike
_ALIKE_PARAMETERS = 0.01
_Key = tuple[str, int]  # kind, clock [MHz]


class UnknownStageError(Exception):
    """A stage of the new shape follows from nothing that was measured; the text says which, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesOfShape:
    """Every stage of a new shape.

    Attributes:
        stages: (num_stages) by index.
        num_estimated: Those of them that were not measured as they are.
        doubt: The largest share that a computation of those may be off by; 0 where all were measured.
    """

    stages: tuple[MeasuredStage, ...]
    num_estimated: int
    doubt: float


@dataclass(frozen=True, slots=True)
class _PerLayer:
    """[s] and [J] of a layer, and by which share that may be off."""

    time_s: float
    energy_j: float
    doubt: float


def stages_of_shape(
    wanted: Sequence[StageWork], kinds: Sequence[AbstractSet[str]], known: Sequence[MeasuredStage]
) -> StagesOfShape:
    """Find times and energies of the stages of a new shape.

    Args:
        wanted: (num_stages) the new shape's stages, by index.
        kinds: (num_stages) what the schedule runs of each.
        known: Measured in whatever shapes.

    Raises:
        UnknownStageError: One of the stages follows from none of them.
    """
    stages: list[MeasuredStage] = []
    doubts: list[float] = []
    found: dict[object, tuple[MeasuredStage, float]] = {}  # most stages of a large model are the same work
    for work, of_stage in zip(wanted, kinds, strict=True):
        alike = [one for one in known if computes_alike(one.work, work)]
        if not alike:
            raise UnknownStageError(f"nothing was measured that computes as stage {work.index} does")
        same = work if not work.parameters else replace(work, index=work.index if any(work.role) else 1)
        if same not in found:
            measured = next((one for one in alike if is_same_work(one.work, work)), None)
            found[same] = (measured, 0.0) if measured is not None else _estimated(work, alike)
        stage, doubt = found[same]
        doubts.append(doubt)
        stages.append(_with_constants(replace(stage, work=work), of_stage, alike))
    return StagesOfShape(
        stages=tuple(stages), num_estimated=sum(doubt > 0 for doubt in doubts), doubt=max(doubts, default=0.0)
    )


def _estimated(work: StageWork, alike: Sequence[MeasuredStage]) -> tuple[MeasuredStage, float]:
    """A stage from the one of its role whose number of layers is nearest, and by which share it may be off."""
    with_layers = [one for one in alike if one.work.layers]
    like = [one for one in with_layers if one.work.role == work.role]
    if not work.layers or not like:
        raise UnknownStageError(
            f"stage {work.index} of {work.num_stages} was not measured"
            + (", and its number of layers is not known" if not work.layers else ", nor was one of its role")
        )
    base = min(like, key=lambda one: abs(one.work.layers - work.layers))
    more = work.layers - base.work.layers
    between = [one for one in with_layers if one.work.role == (False, False)]
    per_layer = _per_layer(between, work)
    _check_parameters(work, base.work, between[0].work)
    samples: list[Sample] = []
    doubt = 0.0
    for sample in base.samples:
        if sample.kind not in _COMPUTATIONS:
            samples.append(sample)
        elif layer := per_layer.get((sample.kind, sample.clock_mhz)):
            time_s, energy_j = sample.time_s + more * layer.time_s, sample.energy_j + more * layer.energy_j
            if time_s <= 0 or energy_j <= 0:
                raise UnknownStageError(f"stage {work.index} would take no time by what a layer takes elsewhere")
            share = abs(more) * layer.time_s * layer.doubt / time_s
            doubt = max(doubt, share)
            samples.append(
                replace(
                    sample,
                    time_s=time_s,
                    energy_j=energy_j,
                    time_std_s=share / 2 * time_s,  # a standard error, of one run
                    energy_std_j=share / 2 * energy_j,
                    num_runs=1,
                )
            )
    return replace(base, samples=tuple(samples)), doubt


def _check_parameters(work: StageWork, base: StageWork, between: StageWork) -> None:
    """Layers of a stage must be those of the others: as large."""
    if not (work.parameters and base.parameters and between.parameters):
        return
    expected = base.parameters + (work.layers - base.layers) * between.parameters / between.layers
    if abs(work.parameters - expected) > _ALIKE_PARAMETERS * expected:
        raise UnknownStageError(
            f"stage {work.index} has {work.parameters} parameters, where as many layers of those that were measured "
            f"have {expected:.0f}"
        )


def _per_layer(between: Sequence[MeasuredStage], work: StageWork) -> dict[_Key, _PerLayer]:
    """Time and energy of a layer, by kind and clock, by stages that hold layers alone."""
    if not between:
        raise UnknownStageError(
            f"stage {work.index} has another number of layers than any that was measured, and no stage between the "
            "first and the last tells what a layer takes"
        )
    shares: dict[_Key, list[tuple[float, float]]] = {}
    for one in between:
        for sample in one.samples:
            if sample.kind in _COMPUTATIONS:
                own = (sample.time_s / one.work.layers, sample.energy_j / one.work.layers)
                shares.setdefault((sample.kind, sample.clock_mhz), []).append(own)
    found = {}
    for (kind, clock_mhz), of_stages in shares.items():
        times_s = [time_s for time_s, _ in of_stages]
        mean_s = fmean(times_s)
        spread = (max(times_s) - min(times_s)) / 2 / mean_s
        if spread > _MAX_DOUBT:
            raise UnknownStageError(
                f"layers are not alike: at {clock_mhz} MHz {profile_name(kind)} of one takes {min(times_s):.6f} to "
                f"{max(times_s):.6f} s"
            )
        found[kind, clock_mhz] = _PerLayer(mean_s, fmean(energy_j for _, energy_j in of_stages), spread + _LEAST_DOUBT)
    return found


def _with_constants(stage: MeasuredStage, kinds: AbstractSet[str], alike: Sequence[MeasuredStage]) -> MeasuredStage:
    """The stage with what it runs and was not measured of it: constants, from another stage that runs them.

    What it does not run in this shape is left out.
    """
    samples = [sample for sample in stage.samples if sample.kind in kinds or sample.kind == CLOCK_CHANGE]
    for kind in sorted(kinds - {sample.kind for sample in samples} - _NOT_NEEDED):
        elsewhere = [] if kind in _COMPUTATIONS else [[s for s in one.samples if s.kind == kind] for one in alike]
        own = next(filter(None, elsewhere), None)
        if own is None:
            raise UnknownStageError(f"{profile_name(kind)} of stage {stage.work.index} was not measured")
        samples += own
    return replace(stage, samples=tuple(samples))
