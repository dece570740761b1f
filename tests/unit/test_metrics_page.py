"""Pages of metrics as text, held against what ``prometheus_client`` makes of the same values."""

import asyncio
import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain
from prometheus_client.registry import Collector

from perseus_dist.planner.job.state.durations import DurationHistogram
from perseus_dist.planner.metrics.catalogue import ALL, ITERATION_TIME, LOOP_LAG, MESSAGES, STAGE_POWER
from perseus_dist.planner.metrics.collector import PlannerMetrics
from perseus_dist.planner.metrics.page import Page
from perseus_dist.planner.runtime.counters import Counters

NAMES = ("plain", 'a "quoted" one', "back\\slash", "new\nline", "ümlaut ✓", "", "a,b}", "\\n")
VALUES = (0.0, -0.0, 1, 0.1, -2.5, 123456.0, 1234567.0, 1e21, 1e-9, 2**63, math.inf, -math.inf, True)


class Same(Collector):
    """By ``prometheus_client`` alone."""

    def __init__(self, histogram: DurationHistogram) -> None:
        self._histogram = histogram

    def collect(self) -> Iterable[Metric]:
        lag = GaugeMetricFamily(LOOP_LAG.name, LOOP_LAG.help, value=VALUES[3])
        messages = CounterMetricFamily(MESSAGES.name, MESSAGES.help, labels=MESSAGES.labels)
        power = GaugeMetricFamily(STAGE_POWER.name, STAGE_POWER.help, labels=STAGE_POWER.labels)
        times = HistogramMetricFamily(ITERATION_TIME.name, ITERATION_TIME.help, labels=ITERATION_TIME.labels)
        for name in NAMES:
            messages.add_metric([name], 3)
            times.add_metric([name], self._histogram.cumulative(), self._histogram.sum_s)
            for number, value in enumerate(VALUES):
                power.add_metric([name, str(number)], float(value))
        yield from (lag, messages, power, times)


def filled(histogram: DurationHistogram, before: Page | None = None) -> Page:
    page = Page(before.names if before else None)
    page.add(LOOP_LAG, VALUES[3])
    for name in NAMES:
        page.add(MESSAGES, 3, name)
        page.add_histogram(ITERATION_TIME, histogram, name)
        for number, value in enumerate(VALUES):
            page.add(STAGE_POWER, value, name, str(number))
    return page


@pytest.mark.parametrize(
    ("accept", "parse"),
    [
        ("", plain),
        ("application/openmetrics-text;version=1.0.0", open_metrics),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", plain),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8,text/plain", open_metrics),
    ],
)
def test_a_page_says_what_the_library_would(accept: str, parse: Callable[[str], Iterable[Metric]]) -> None:
    histogram = DurationHistogram((0.1, 2.5, 1e6))
    for duration_s in (0.05, 0.1, 7.0, 1e9):
        histogram.observe(duration_s)
    encode, _ = choose_encoder(accept)

    def read(text: bytes) -> dict[str, list[object]]:
        return {
            family.name: [
                family.type,
                family.documentation,
                sorted((one.name, *sorted(one.labels.items()), repr(one.value)) for one in family.samples),
            ]
            for family in parse(text.decode())
            if family.samples
        }

    expected = read(encode(Same(histogram)))
    first = filled(histogram)
    ending = b"# EOF\n" if parse is open_metrics else b""
    assert read(b"".join(first.text(encode)) + ending) == expected
    again = filled(histogram, first)  # names are known by now
    assert b"".join(again.text(encode)) == b"".join(first.text(encode))
    assert again.names == first.names


def test_names_of_series_that_have_ended_are_forgotten() -> None:
    first = Page()
    first.add(MESSAGES, 1, "a")
    second = Page(first.names)
    second.add(MESSAGES, 1, "b")
    assert len(second.names) == 1


def test_every_format_that_a_client_may_ask_for_names_series_alike() -> None:
    async def pages(*accepts: str) -> list[tuple[bytes, str]]:
        budgets = SimpleNamespace(states=(), prices=SimpleNamespace(states=()))
        jobs = SimpleNamespace(
            counters=Counters(), num_streams=0, all=list, budgets=budgets, ownership=None, shared_planning=None
        )
        metrics = PlannerMetrics(jobs, SimpleNamespace(trouble=""))  # type: ignore[arg-type]
        return [await asyncio.to_thread(metrics.expose, accept) for accept in accepts]

    told = asyncio.run(
        pages(
            "",
            "*/*",
            "text/plain;version=1.0.0;escaping=dots",
            "application/openmetrics-text;version=1.0.0;escaping=dots",
            "application/openmetrics-text;version=1.0.0;escaping=values, text/plain",
            "application/openmetrics-text;version=99;escaping=dots;q=\x00",
        )
    )
    for body, content_type in told:
        lines = body.decode().splitlines()
        assert "perseus_open_streams 0.0" in lines
        assert "# TYPE perseus_open_streams gauge" in lines
        assert sum(line.startswith("# HELP perseus_") for line in lines) == len(ALL)
        assert lines.count("# EOF") == ("openmetrics" in content_type) == lines[-1:].count("# EOF")
        assert "dots" not in content_type
        assert "values" not in content_type
    assert told[0][1].startswith("text/plain")
