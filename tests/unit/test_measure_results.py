"""What a measurement says and writes: headline, JSON without NaN, page; and the lease that is kept meanwhile."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from perseus_dist.device.control import ClockReport
from perseus_dist.measure.bench.bench import Block
from perseus_dist.measure.bench.kept_control import KeptControl
from perseus_dist.measure.bench.stage import StageSize
from perseus_dist.measure.clock_sweep import Point
from perseus_dist.measure.errors import MeasureError
from perseus_dist.measure.estimates import Quantiles
from perseus_dist.measure.measurement import GpuFacts, Measurement
from perseus_dist.measure.preset_match import match_presets
from perseus_dist.measure.proof.nvml_cost import CallCost
from perseus_dist.measure.proof.visible_devices import VisibleCase
from perseus_dist.measure.results.pictures import plot_curves
from perseus_dist.measure.results.result_files import measure_document, write_results
from perseus_dist.measure.results.tables import facts, headline, tables
from perseus_dist.measure.saving import Noise, PipelineSaving
from perseus_dist.measure.switch_latency import Trial, summarise

NOISE = Noise(time=0.001, energy=0.002, num_pairs=2)
SAVING = PipelineSaving(
    pp_size=8,
    num_microbatches=32,
    saving_percent=11.04,
    half_width_percent=1.96,
    slowdown_percent=-0.001,
    late_percent=0.12,
    iteration_s=3.9,
    energy_j=12_000.0,
    switch_latency_s=0.0137,
    largest_saving_percent=20.0,
    largest_slowdown_percent=15.0,
)


def point(kind: str, clock_mhz: int, event_reasons: int = 0) -> Point:
    return Point(
        kind=kind,
        clock_mhz=clock_mhz,
        observed_mhz=clock_mhz,
        downwards=True,
        time_s=50.0 / clock_mhz,
        time_std_s=1e-5,
        num_runs=9,
        power_w=clock_mhz / 3,
        power_se_w=0.2,
        event_reasons=event_reasons,
        temperature_c=None,
    )


def measurement(points: Sequence[Point]) -> Measurement:
    trials = [
        Trial(to_mhz=900, call_s=0.007, read_back_s=0.015, kernels_s=None),
        Trial(to_mhz=900, call_s=0.007, read_back_s=0.017, kernels_s=None),
        Trial(to_mhz=1410, call_s=0.007, read_back_s=None, kernels_s=0.014),
    ]
    return Measurement(
        began_at="2026-11-22T12:00:00+00:00",
        gpu=GpuFacts(
            name="<GPU> & Co",
            uuid="GPU-1",
            driver_version="580.00",
            memory_mib=81920,
            clocks_mhz=(1410, 210),
            power_limit_w=400.0,
            default_power_limit_w=400.0,
            is_simulated=False,
            workload="4 layers",
            control="clockd",
            observed_because="",
        ),
        energy_period_s=0.02,
        points=tuple(points),
        blocked=(),
        latencies=tuple(summarise(trials)),
        nvml=(CallCost(function="nvmlDeviceGetPowerUsage", cost_us=Quantiles.of([]), failure="Not Supported"),),
        hook=(),
        boundaries=None,
        visible=(VisibleCase(setting=None, by_cuda="GPU-1", by_nvml="GPU-2", trouble=""),),
        presets=tuple(match_presets(points, 1410, "NVIDIA A100-SXM4-80GB")),
        seconds=150.0,
    )


TWO_CLOCKS = [point(kind, clock_mhz) for kind in "FB" for clock_mhz in (1410, 900)]


def test_the_headline_has_saving_interval_and_slowdown() -> None:
    assert headline(measurement(TWO_CLOCKS), SAVING) == (
        "A PP8 M32 1F1B pipeline of this would save 11.0 +- 2.0 % at no slowdown (0.00 %; within the noise no more "
        "than 0.12 %)."
    )
    one_clock = measurement([point("F", 1410), point("B", 1410)])
    assert not one_clock.has_curves
    assert "only one clock was seen, 1410 MHz" in headline(one_clock, None)


def test_points_braked_by_heat_are_not_planned_with_and_capped_ones_are() -> None:
    capped = measurement([*TWO_CLOCKS, point("F", 1200, 0x4), point("B", 1200, 0x4)])
    assert capped.planned_points == list(capped.points)
    hot = measurement([point("F", 1410), point("B", 1410), point("F", 900, 0x20), point("B", 900, 0x22)])
    assert {found.clock_mhz for found in hot.planned_points} == {1410}
    assert not hot.has_curves
    assert "braked by heat" in headline(hot, None)


def test_the_latency_is_the_kernels_or_else_what_was_read_back() -> None:
    found = measurement(TWO_CLOCKS)
    assert [(latency.clock_mhz, latency.num_trials) for latency in found.latencies] == [(1410, 1), (900, 2)]
    assert found.latencies[0].read_back_s.num == 0
    assert found.switch_latency_s == 0.016  # the upper of 14 ms by kernels and 16 ms by reading


def test_everything_is_told_and_written(tmp_path: Path) -> None:
    blocked = replace(_block(), power_w=83.6)
    found = replace(measurement(TWO_CLOCKS), blocked=(blocked,), left_out=("something, because",))
    document = measure_document(found, NOISE, SAVING)
    assert document["nvml"][0]["cost_us"]["median"] is None
    assert json.loads(json.dumps(document, allow_nan=False))["blocking_power_w"] == 83.6
    text = " ".join(cell for shown in tables(found) for row in shown.rows for cell in row)
    assert "DIFFER: CUDA GPU-1, NVML GPU-2" in text
    assert all(len(row) == len(shown.headers) for shown in tables(found) for row in shown.rows)
    assert "left out: something, because" in list(facts(found, NOISE, SAVING))
    write_results(found, NOISE, SAVING, None, tmp_path)
    page = (tmp_path / "measure.html").read_text()
    assert page.count("<svg") == 2  # no frontier was given
    assert "&lt;GPU&gt; &amp; Co" in page
    assert "<GPU>" not in page
    assert "http://" not in page.replace("http://www.w3.org/", "")  # self-contained


def test_a_page_of_one_clock_speaks_of_no_profile_and_of_no_line(tmp_path: Path) -> None:
    """It named a profile.csv that is not written without curves, and a line that has one point."""
    one_clock = replace(measurement([point("F", 1410), point("B", 1410)]), latencies=(), blocked=(_block(),))
    write_results(one_clock, NOISE, None, None, tmp_path)
    page = (tmp_path / "measure.html").read_text()
    assert "profile.csv" not in page
    assert "thin line" not in page
    two_clocks = replace(measurement(TWO_CLOCKS), blocked=(_block(),))
    write_results(two_clocks, NOISE, SAVING, None, tmp_path)
    page = (tmp_path / "measure.html").read_text()
    assert "profile.csv is for" in page
    assert ("thin line" in page) == bool(two_clocks.presets)


def test_one_clock_is_the_only_one_on_the_axis() -> None:
    for ax in plot_curves(measurement([point("F", 1500), point("B", 1500)])).axes:
        assert ax.get_xticks().tolist() == [1500]
    assert len(plot_curves(measurement(TWO_CLOCKS)).axes[0].get_xticks()) > 1


def _block() -> Block:
    return Block(
        kind="",
        begin_ns=0,
        end_ns=1,
        times_s=(),
        power_w=80.0,
        power_se_w=0.1,
        clock_mhz=1410,
        event_reasons=0,
        temperature_c=None,
    )


@pytest.mark.parametrize("sizes", [{"heads": 3}, {"layers": 0}, {"hidden": 1 << 20, "heads": 1}])
def test_impossible_stages_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(MeasureError, match="expected"):
        StageSize(**sizes)


class Control:
    """A control that counts who polls it; its one report comes while nobody but the keeper polls."""

    name = "clockd"
    clocks_mhz = (1410, 900)
    refusal = ""

    def __init__(self) -> None:
        self.num_polls = 0
        self.is_closed = False
        self.requested: list[tuple[int | None, int]] = []

    def request(self, clock_mhz: int | None, now_ns: int) -> None:
        self.requested.append((clock_mhz, now_ns))

    def fileno(self) -> int:
        return -1

    def poll(self, now_ns: int) -> list[ClockReport]:
        self.num_polls += 1
        if self.num_polls != 2:
            return []
        return [
            ClockReport(
                requested_mhz=900,
                observed_mhz=900,
                event_reasons=0,
                request_ns=1,
                set_ns=2,
                reached_ns=now_ns,
                error="",
            )
        ]

    def close(self) -> None:
        self.is_closed = True


def test_the_lease_is_kept_while_the_main_thread_waits_and_no_report_is_lost() -> None:
    control = Control()
    with KeptControl(control) as kept:
        kept.request(900, 1)
        until_s = time.monotonic() + 60.0
        while control.num_polls < 4 and time.monotonic() < until_s:
            time.sleep(0.01)
        (report,) = kept.poll(time.monotonic_ns())
        assert report.requested_mhz == 900
        assert kept.poll(time.monotonic_ns()) == []
    assert control.requested == [(900, 1)]
    assert control.is_closed
