"""One answer to a scrape, while it is put together: a line of text for each series.

``prometheus_client`` writes types and help. Its samples are not used: a page of 100 jobs has 10,000 series, of which
numbers alone change from one scrape to the next.
"""

from collections.abc import Callable, Iterable

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from perseus_dist.planner.job.state.durations import DurationHistogram
from perseus_dist.planner.metrics.catalogue import ALL, Family, Kind

EOF = b"# EOF\n"
"""Ends a page in OpenMetrics."""

_number: Callable[[float], str] = floatToGoString

_Key = tuple[Family | str, ...]
SeriesNames = dict[_Key, str]
"""Names of series with their labels, as text, by family and values of labels."""


class Page:
    """Values of metrics, by family. A family without a value is there with its help alone.

    Args:
        known: ``names`` of the page before, or nothing.

    Attributes:
        names: Of all series so far.
    """

    def __init__(self, known: SeriesNames | None = None) -> None:
        self._known: SeriesNames = {} if known is None else known
        self.names: SeriesNames = {}
        self._lines: dict[Family, list[str]] = {family: [] for family in ALL}

    def add(self, family: Family, value: float, *labels: str) -> None:
        """Add the value of one series of a counter or a gauge."""
        key: _Key = (family, *labels)
        name = self._known.get(key)
        if name is None:
            name = _series_name(family.shown_name, family.labels, labels)
        self.names[key] = name
        self._lines[family].append(f"{name} {_number(value)}\n")

    def add_info(self, family: Family, *labels: str) -> None:
        """Add one series of an info."""
        self.add(family, 1.0, *labels)

    def add_histogram(self, family: Family, histogram: DurationHistogram, *labels: str) -> None:
        """Add the series of a histogram."""
        buckets = histogram.cumulative()
        for bound, count in buckets:
            self._add_part(family, "_bucket", count, labels, bound)
        self._add_part(family, "_count", buckets[-1][1], labels)
        self._add_part(family, "_sum", histogram.sum_s, labels)

    def _add_part(self, family: Family, part: str, value: float, labels: tuple[str, ...], *bound: str) -> None:
        key: _Key = (family, part, *labels, *bound)
        name = self._known.get(key)
        if name is None:
            name = _series_name(family.name + part, (*family.labels, "le")[: len(labels) + len(bound)], labels + bound)
        self.names[key] = name
        self._lines[family].append(f"{name} {_number(value)}\n")

    def text(self, encode: Callable[[Collector], bytes]) -> Iterable[bytes]:
        """All families, in the catalogue's order.

        Args:
            encode: Of ``prometheus_client``, as its ``choose_encoder`` returns it; writes types and help.
        """
        for family, lines in self._lines.items():
            yield encode(_Head(family)).removesuffix(EOF)
            yield "".join(lines).encode()


class _Head(Collector):
    """A family without its series."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        """The family, without a sample."""
        yield _empty(self._family)


def _series_name(name: str, names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return name
    labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(names, values, strict=True))
    return f"{name}{{{labels}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


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
