"""Spans of a job, where OpenTelemetry has a tracer provider in the trainer's process. Nothing is imported elsewhere.

Megatron-LM sets one where ``--otel-enabled`` is given (nemo-lens: on the ranks that export), or a script does.
"""

import atexit
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import Tracer

    from perseus_dist.boundaries.agent_status import AgentStatus

_log = logging.getLogger(__name__)

_PERIOD_S = 0.5
_EXIT_S = 2.0  # for the last spans, as the process ends


def open_tracer() -> "Tracer | None":
    """A tracer of the provider that is set in this process; None without one. Never raises."""
    if "opentelemetry.trace" not in sys.modules:  # a script that sets a provider has imported it
        return None
    try:
        from opentelemetry import trace

        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return None
        tracer = provider.get_tracer("perseus_dist")
    except Exception as error:
        _log.debug("perseus: OpenTelemetry cannot be used: %r", error)
        return None
    return None if isinstance(tracer, trace.NoOpTracer) else tracer


def start_tracing(
    tracer: "Tracer", *, job: str, rank: int, read_status: "Callable[[], AgentStatus | None]"
) -> "JobTracing | None":
    """Begin to make spans; None where that fails, of which the log has a line. Arguments as of ``JobTracing``."""
    try:
        return JobTracing(tracer, job=job, rank=rank, read_status=read_status)
    except Exception as error:
        _log.warning("perseus: there are no spans of this job: %r", error)
        return None


class JobTracing:
    """A thread that looks at the agent's status twice a second, and makes spans of what has changed.

    Begins and ends of spans are known to a second. After an error there is a line in the log, and no more spans.

    Args:
        tracer: Of the process's provider.
        job: The job's name.
        rank: Whose agent is asked.
        read_status: The agent's newest; None where there is none.
    """

    def __init__(
        self, tracer: "Tracer", *, job: str, rank: int, read_status: "Callable[[], AgentStatus | None]"
    ) -> None:
        from opentelemetry import trace

        self._tracer = tracer
        self._attributes: dict[str, str | int | float] = {"perseus.job": job, "perseus.rank": rank}
        self._linked = trace.get_current_span().get_span_context()  # of the thread that trains
        self._read_status = read_status
        self._is_over = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="perseus-spans", daemon=True)
        self._thread.start()
        atexit.register(self._end_with_process)  # before the provider's own, which was registered earlier

    def close(self) -> None:
        """End all spans soon. Does not wait."""
        self._is_over.set()
        atexit.unregister(self._end_with_process)

    def _run(self) -> None:
        from perseus_dist.training.rank.phase_spans import PhaseSpans

        try:
            spans = PhaseSpans(self._tracer, self._attributes, self._linked, time.time_ns())
            is_over = False
            while not is_over:
                is_over = self._is_over.wait(_PERIOD_S)
                status = self._read_status()
                if status is not None and status.phase:
                    spans.record(status, time.time_ns())
            spans.close(time.time_ns())
        except Exception as error:
            _log.warning("perseus: there are no more spans of this job: %r", error)

    def _end_with_process(self) -> None:
        if os.getpid() == self._pid:  # a fork has not this thread
            self._is_over.set()
            with suppress(KeyboardInterrupt):
                self._thread.join(_EXIT_S)
