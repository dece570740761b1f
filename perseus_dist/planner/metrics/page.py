"""One answer to a scrape, while it is put together."""

from collections.abc import Iterable

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from perseus_dist.planner.job.state.durations import DurationHistogram
from perseus_dist.planner.metrics.catalogue import ALL, Family, Kind


class Page:
    """Values of metrics, by family. A family without a value is there with its help alone."""

    def __init__(self) -> None:
        self._families = {family: _empty(family) for family in ALL}

    def add(self, family: Family, value: float, *labels: str) -> None:
        """Add the value of one series of a counter or a gauge."""
        self._families[family].add_sample(family.shown_name, dict(zip(family.labels, labels, strict=True)), value)

    def add_info(self, family: Family, *labels: str) -> None:
        """Add one series of an info."""
        self.add(family, 1.0, *labels)

    def add_histogram(self, family: Family, histogram: DurationHistogram, *labels: str) -> None:
        """Add the series of a histogram."""
        metric = self._families[family]
        assert isinstance(metric, HistogramMetricFamily)
        metric.add_metric(labels, buckets=histogram.cumulative(), sum_value=histogram.sum_s)

    def metrics(self) -> Iterable[Metric]:
        """All families, in the catalogue's order."""
        return self._families.values()


def _empty(family: Family) -> Metric:
    match family.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(family.name, family.help, labels=family.labels)
        case Kind.GAUGE:
            return GaugeMetricFamily(family.name, family.help, labels=family.labels)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(family.name, family.help, labels=family.labels)
        case Kind.INFO:
            return InfoMetricFamily(family.name, family.help, labels=family.labels)
