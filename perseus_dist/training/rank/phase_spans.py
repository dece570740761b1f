"""Phases of a job as OpenTelemetry's spans. Imported only where a tracer provider is set, by ``tracing``."""

from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context

if TYPE_CHECKING:
    from perseus_dist.boundaries.agent_status import AgentStatus

_ENFORCING = "enforcing"
_NAMES = {
    "warming_up": "perseus.baseline",
    "profiling": "perseus.sweep",
    "re-profiling": "perseus.sweep",
    "planning": "perseus.planning",
    _ENFORCING: "perseus.plan",
    "released": "perseus.release",
}
"""Of the phases that have a span."""

_WAIT = "perseus.straggler_wait"
_LONGEST_NS = 300 * 1_000_000_000
"""A span is exported when it ends: a job that is killed loses the last minutes, and not hours."""

_Attributes = dict[str, str | int | float]


class PhaseSpans:
    """A span for each phase, plan in force and wait for a straggler; probes and falls are events of them.

    All are children of one span, ``perseus.job``, which ends as it begins. It is the root of a trace of its own, linked
    to a span of the trainer's: spans of Perseus last for minutes, and that one as their parent would be over long
    before them. What goes on for longer than 5 min has a span for each 5 min.

    Args:
        tracer: Makes the spans.
        attributes: Of each of them.
        linked: A span of the trainer's; one that is not valid is no link.
        now_ns: [ns] since the epoch, as everywhere here.
    """

    def __init__(self, tracer: trace.Tracer, attributes: _Attributes, linked: trace.SpanContext, now_ns: int) -> None:
        links = [trace.Link(linked)] if linked.is_valid else []
        job = tracer.start_span("perseus.job", context=Context(), attributes=attributes, links=links, start_time=now_ns)
        job.end(now_ns)
        self._phase = _Track(tracer, trace.set_span_in_context(job, Context()), attributes)
        self._wait = _Track(tracer, trace.set_span_in_context(job, Context()), attributes)
        self._latest: AgentStatus | None = None

    def record(self, status: "AgentStatus", now_ns: int) -> None:
        """Record a job's status: what has changed since the one before ends and begins spans."""
        before, self._latest = self._latest, status
        if before is not None:
            if status.num_probes > before.num_probes:
                self._phase.add_event("perseus.probe", {"perseus.probes": status.num_probes}, now_ns)
            if status.num_falls > before.num_falls:
                self._phase.add_event("perseus.fall", {"perseus.falls": status.num_falls}, now_ns)
        # The newest switch says which plan is followed, and what is waited for, while one is in force.
        is_planned = status.phase == _ENFORCING
        name = _NAMES.get(status.phase, "")
        self._phase.go_on(name, status.switch_revision if is_planned else 0, status, now_ns)
        self._wait.go_on(_WAIT if is_planned and status.t_prime_s else "", 0, status, now_ns)

    def close(self, now_ns: int) -> None:
        """End all that is open."""
        self._phase.end(now_ns)
        self._wait.end(now_ns)


class _Track:
    """At most one span at a time, each the next one's predecessor."""

    def __init__(self, tracer: trace.Tracer, parent: Context, attributes: _Attributes) -> None:
        self._tracer = tracer
        self._parent = parent
        self._attributes = attributes
        self._span: trace.Span | None = None
        self._key = ("", 0)
        self._begun_ns = 0
        self._latest: AgentStatus | None = None

    def go_on(self, name: str, revision: int, status: "AgentStatus", now_ns: int) -> None:
        """The span that is open goes on, or another one begins.

        Args:
            name: Of the span; empty for none.
            revision: Another one begins another span of the same name.
            status: Its figures are the span's.
            now_ns: Since the epoch.
        """
        if (name, revision) != self._key or now_ns - self._begun_ns >= _LONGEST_NS:
            self.end(now_ns)
            self._key, self._begun_ns = (name, revision), now_ns
            if name:
                attributes = {**self._attributes, **_of_begin(status)}
                self._span = self._tracer.start_span(
                    name, context=self._parent, attributes=attributes, start_time=now_ns
                )
        self._latest = status

    def add_event(self, name: str, attributes: _Attributes, now_ns: int) -> None:
        """Add an event to the span that is open; without one it is lost."""
        if self._span is not None:
            self._span.add_event(name, attributes, now_ns)

    def end(self, now_ns: int) -> None:
        """End the span that is open, with the figures of its latest status."""
        span, self._span = self._span, None
        if span is not None and self._latest is not None and span.is_recording():  # its provider may have ended it
            span.set_attributes(_of_end(self._latest))
            span.end(now_ns)


def _of_begin(status: "AgentStatus") -> _Attributes:
    """Figures that are a span's from its begin on."""
    return {
        "perseus.phase": status.phase,
        "perseus.table_revision": status.table_revision,
        "perseus.switch_revision": status.switch_revision,
        "perseus.target": status.target,
    }


def _of_end(status: "AgentStatus") -> _Attributes:
    """Figures that are known as a span ends, by measurement too; those that are not known are left out."""
    figures: dict[str, float | None] = {
        "perseus.predicted_saving": status.predicted_saving,
        "perseus.measured_saving": status.measured_saving,
        "perseus.iteration_time_s": status.job_time_s or None,
        "perseus.t_prime_s": status.t_prime_s or None,
        "perseus.stragglers": status.num_stragglers,
        "perseus.straggler_degree": status.straggler_degree,
    }
    return {name: value for name, value in figures.items() if value is not None}
