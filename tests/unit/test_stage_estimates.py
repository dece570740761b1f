"""Stages of a new shape: as they were measured, or by what a layer takes; and what nothing follows from."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from perseus_dist.fingerprint import Fingerprint, Workload, of_stage
from perseus_dist.messages.from_agent import Sample
from perseus_dist.planner.shapes.stage import MeasuredStage, StageWork, is_same_work, joined
from perseus_dist.planner.shapes.stage_estimates import UnknownStageError, stages_of_shape
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE

FB = frozenset({"F", "B"})
KNOWN = Fingerprint(gpu_name="A100", workload=Workload(microbatch_size=4))
LAYER_S, EMBEDDING_S, HEAD_S = 0.002, 0.001, 0.005
CLOCKS_MHZ = (1410, 1005)


def work(index: int, num_stages: int, layers: int, fingerprint: Fingerprint = KNOWN) -> StageWork:
    parameters = 100 * layers + 7 * (index == 0) + 9 * (index == num_stages - 1)
    return StageWork(index=index, num_stages=num_stages, parameters=parameters, layers=layers, fingerprint=fingerprint)


def true_s(of: StageWork, clock_mhz: int, layer_s: float = LAYER_S) -> float:
    is_first, is_last = of.role
    return (of.layers * layer_s + is_first * EMBEDDING_S + is_last * HEAD_S) * 1410 / clock_mhz


def sample(kind: str, clock_mhz: int, time_s: float, power_w: float = 300.0) -> Sample:
    return Sample(
        chunk=0, kind=kind, clock_mhz=clock_mhz, time_s=time_s, energy_j=power_w * time_s, time_std_s=1e-6,
        energy_std_j=0.01, num_runs=32, window_s=1.0,
    )  # fmt: skip


def measured(of: StageWork, layer_s: float = LAYER_S, kinds: Sequence[str] = ("F", "B")) -> MeasuredStage:
    samples = [sample(kind, clock, true_s(of, clock, layer_s)) for kind in kinds for clock in CLOCKS_MHZ]
    return MeasuredStage(work=of, samples=tuple(samples), blocking_power_w=80.0, switch_latency_s=0.01)


def shape(*layers: int, fingerprint: Fingerprint = KNOWN) -> list[StageWork]:
    return [work(index, len(layers), count, fingerprint) for index, count in enumerate(layers)]


FOUR = [measured(one) for one in shape(6, 6, 6, 6)]


def test_stages_that_were_measured_are_taken_as_they_are() -> None:
    smaller = of_stage(replace(KNOWN, dp_size=3, schedule_digest="another"))
    found = stages_of_shape(shape(6, 6, 6, 6, fingerprint=smaller), [FB] * 4, FOUR)
    assert (found.num_estimated, found.doubt) == (0, 0.0)
    assert [one.samples for one in found.stages] == [one.samples for one in FOUR]
    assert smaller == KNOWN
    assert stages_of_shape(shape(6, 6, 6, 6), [FB] * 4, [*reversed(FOUR)]).num_estimated == 0


@pytest.mark.parametrize("layers", [(8, 8, 8), (5, 5, 5, 5, 4), (12, 12), (7, 6, 6, 5), (9, 8, 7)])
def test_other_stages_follow_from_their_layers(layers: tuple[int, ...]) -> None:
    wanted = shape(*layers)
    found = stages_of_shape(wanted, [FB] * len(layers), FOUR)
    assert found.num_estimated == sum(not any(is_same_work(one, other.work) for other in FOUR) for one in wanted)
    for stage in found.stages:
        for one in stage.samples:
            assert one.time_s == pytest.approx(true_s(stage.work, one.clock_mhz))
            assert one.energy_j == pytest.approx(300 * one.time_s)
    assert 0 < found.doubt < 0.011
    assert {(one.blocking_power_w, one.switch_latency_s) for one in found.stages} == {(80.0, 0.01)}


def test_the_interval_holds_layers_that_differ_a_little() -> None:
    uneven = [
        measured(one, LAYER_S * factor) for one, factor in zip(shape(6, 6, 6, 6), (1, 0.98, 1.02, 1), strict=True)
    ]
    wanted = shape(8, 8, 8)
    found = stages_of_shape(wanted, [FB] * 3, uneven)
    assert found.doubt > stages_of_shape(wanted, [FB] * 3, FOUR).doubt
    for stage in found.stages:
        own = [one for one in stage.samples if one.clock_mhz == 1410]
        for factor in (0.98, 1.02):
            base_s = 6 * LAYER_S * (1 if stage.work.index != 1 else 0.98)
            truth_s = true_s(replace(stage.work, layers=0), 1410) + base_s + 2 * LAYER_S * factor
            assert all(abs(one.time_s - truth_s) < 2 * one.time_std_s for one in own)


def test_a_stage_between_that_was_measured_in_another_shape_is_preferred() -> None:
    three = [measured(one) for one in shape(8, 8, 8)]
    known = joined(tuple(FOUR), tuple(three))
    assert len(known) == 7
    found = stages_of_shape(shape(8, 8, 8), [FB] * 3, known)
    assert found.num_estimated == 0
    assert stages_of_shape(shape(6, 6, 6, 6), [FB] * 4, known).num_estimated == 0


def test_of_the_same_work_the_newer_measurement_counts() -> None:
    newer = measured(FOUR[1].work, 2 * LAYER_S)  # one and two are the same work
    known = joined(tuple(FOUR), (newer,))
    assert known == (FOUR[0], FOUR[3], newer)


@pytest.mark.parametrize(
    ("known", "wanted", "why"),
    [
        ([], shape(6, 6), "nothing was measured"),
        (FOUR, shape(6, 6, fingerprint=replace(KNOWN, gpu_name="A40")), "nothing was measured that computes as"),
        (FOUR, shape(8, 8, fingerprint=replace(KNOWN, workload=Workload(microbatch_size=8))), "computes as stage 0"),
        ([measured(one) for one in shape(6, 6)], shape(4, 4, 4), "no stage between the first and the last"),
        ([measured(one) for one in shape(6, 6)], shape(12), "stage 0 of 1 was not measured, nor was one of its role"),
        (FOUR, [replace(one, layers=0) for one in shape(8, 8, 8)], "its number of layers is not known"),
        (
            [measured(one, LAYER_S * (1 + 0.2 * one.index)) for one in shape(6, 6, 6, 6)],
            shape(8, 8, 8),
            "layers are not alike: at 1410 MHz forward of one takes",
        ),
        (FOUR, [replace(one, parameters=2 * one.parameters) for one in shape(8, 8, 8)], "stage 0 has 1614 parameters"),
        ([measured(one, kinds="F") for one in shape(6, 6)], shape(6, 6), "backward of stage 0 was not measured"),
    ],
)
def test_what_does_not_follow_is_said(known: list[MeasuredStage], wanted: list[StageWork], why: str) -> None:
    with pytest.raises(UnknownStageError, match=why):
        stages_of_shape(wanted, [FB] * len(wanted), known)


def test_parameters_that_are_not_known_leave_the_place_to_compare() -> None:
    unknown = [replace(one, parameters=0, layers=0) for one in shape(6, 6, 6, 6)]
    known = [replace(one, work=stage) for one, stage in zip(FOUR, unknown, strict=True)]
    assert stages_of_shape(unknown, [FB] * 4, known).num_estimated == 0
    with pytest.raises(UnknownStageError, match="stage 0 of 3 was not measured"):
        stages_of_shape([replace(one, parameters=0, layers=0) for one in shape(8, 8, 8)], [FB] * 3, known)


def test_what_a_stage_runs_in_this_shape_alone_comes_from_another_and_what_it_does_not_run_is_left_out() -> None:
    load, change = sample("LOAD", 1410, 0.01, 100), sample(CLOCK_CHANGE, 1005, 0.012, 0)
    step = sample("STEP", 1410, 0.03, 100)
    known = [replace(one, samples=(*one.samples, change, step)) for one in FOUR]
    known[0] = replace(known[0], samples=(*known[0].samples, load))
    (first, second, third) = stages_of_shape(shape(6, 6, 6), [FB | {"LOAD"}, FB | {"LOAD", "SEND_F"}, FB], known).stages
    assert {one.kind for one in first.samples} == {"F", "B", "LOAD", CLOCK_CHANGE}
    assert [one for one in second.samples if one.kind == "LOAD"] == [load]
    assert {one.kind for one in third.samples} == {"F", "B", CLOCK_CHANGE}
