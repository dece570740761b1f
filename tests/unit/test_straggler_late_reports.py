"""Iterations that are reported after a throttle was read, and had begun before it, do not contradict NVML."""

from perseus_dist.straggler.detector import Detector, Judgement
from perseus_dist.straggler.evidence.observation import GpuObservation, IterationObservation
from perseus_dist.straggler.layout import Layout, RankCoords

MHZ, CAPPED_MHZ = 1410, 1110
THERMAL = 0x20
SLOW_RANK = 3
INJECTED = 30
NUM_LATE = 3  # iterations that ranks' reports are behind, as where exact times come late and are batched


def run(num_iterations: int, slowdown: float) -> list[Judgement]:
    """Judgements of a PP2 x DP2 job, an iteration a second, from the injection on."""
    detector = Detector(Layout.of([RankCoords(pp_rank=rank // 2, dp_rank=rank % 2, tp_rank=0) for rank in range(4)]))
    judgements = []
    for begun in range(num_iterations):
        is_capped = begun >= INJECTED
        for rank in range(4):
            if rank == SLOW_RANK and is_capped:
                gpu = GpuObservation(requested_mhz=MHZ, observed_mhz=CAPPED_MHZ, event_reasons=THERMAL, iteration=begun)
                for tenth in range(3):
                    assert detector.observe_gpu(rank, gpu, begun + tenth / 10) == ""
        reported = begun - NUM_LATE
        for rank in range(4) if reported >= 0 else ():
            factor = slowdown if rank == SLOW_RANK and reported >= INJECTED else 1.0
            seen = IterationObservation(
                iteration=reported,
                time_ratios=(factor, factor),
                requested_mhz=(MHZ, MHZ),
                pipeline_time_s=factor if rank % 2 == SLOW_RANK % 2 else 1.0,
                planned_time_s=1.0,
            )
            assert detector.observe(rank, seen, begun + 0.9) == ""
        judgement = detector.judge(begun + 0.95)
        if is_capped:
            judgements.append(judgement)
    return judgements


def test_a_verdict_stands_until_iterations_that_began_later_speak() -> None:
    for judgement in run(45, 1.19):
        (verdict,) = judgement.verdicts
        assert verdict.rank == SLOW_RANK


def test_iterations_that_began_later_do_contradict() -> None:
    assert not run(50, 1.0)[-1].verdicts
