"""A stage of a model, and what was measured of it, whatever shape its job had."""

from dataclasses import dataclass

from perseus_dist.fingerprint import Fingerprint, differences
from perseus_dist.messages.from_agent import Sample

MAX_STAGES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """The part of a model that a stage holds, and how it is computed.

    Attributes:
        index: Of the stage in the model.
        num_stages: Of the whole model.
        parameters: That one of its GPUs holds; 0 is not known.
        layers: Transformer layers; 0 is not known.
        fingerprint: Of a rank that runs it, as ``fingerprint.of_stage`` makes it.
    """

    index: int
    num_stages: int
    parameters: int
    layers: int
    fingerprint: Fingerprint

    @property
    def role(self) -> tuple[bool, bool]:
        """Whether it is the model's first stage, and its last."""
        return self.index == 0, self.index == self.num_stages - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStage:
    """Measurements of a stage, summed up.

    Attributes:
        work: The stage.
        samples: By kind and clock, one each, of chunk 0; of the slowest GPU of a tensor-parallel group.
        blocking_power_w: [W] that one of its GPUs draws waiting; 0 is not known.
        switch_latency_s: [s] of a change of clocks; 0 is not known.
    """

    work: StageWork
    samples: tuple[Sample, ...]
    blocking_power_w: float = 0.0
    switch_latency_s: float = 0.0


def computes_alike(one: StageWork, other: StageWork) -> bool:
    """Whether a layer of one takes what a layer of the other takes, as far as is known."""
    return one.fingerprint == other.fingerprint or not differences(one.fingerprint, other.fingerprint)


def is_same_work(one: StageWork, other: StageWork) -> bool:
    """Whether what was measured of one holds for the other as it is.

    Where parameters are not known on both sides, the stage must have the same place among as many.
    """
    if one.role != other.role or not computes_alike(one, other):
        return False
    if one.parameters and other.parameters:
        return (one.parameters, one.layers or other.layers) == (other.parameters, other.layers or one.layers)
    return (one.index, one.num_stages) == (other.index, other.num_stages)


def joined(known: tuple[MeasuredStage, ...], newer: tuple[MeasuredStage, ...]) -> tuple[MeasuredStage, ...]:
    """All of them, the newest where there are many; of the same work, the newer one alone."""
    replaced = [one for one in known if not any(is_same_work(one.work, other.work) for other in newer)]
    return (*replaced, *newer)[-MAX_STAGES:]
