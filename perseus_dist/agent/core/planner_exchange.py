"""Messages between the planner and this rank: applies those received, sends what was measured here."""

from perseus_dist.agent.core.actions import Action, LeavePlanner, LogDebug, LogWarning
from perseus_dist.agent.core.clock_directives import ClockDirectives
from perseus_dist.agent.core.clock_requests import ClockRequests
from perseus_dist.agent.core.planner_session import PlannerSession
from perseus_dist.agent.core.reporter import Reporter, drift_sentence
from perseus_dist.agent.following.position import Position
from perseus_dist.agent.measuring.held_clock import HeldClock
from perseus_dist.messages.from_agent import Goodbye, ProfileSamples, RunTimes, ScheduleText
from perseus_dist.messages.from_planner import (
    Attached,
    PlannerMessage,
    PlanTable,
    Probe,
    ProfileAck,
    Refused,
    Release,
    ScheduleWanted,
    StopSweep,
    Sweep,
    Switch,
)

_TROUBLED_ITERATIONS = 3  # in a row out of step, before it counts as trouble


class PlannerExchange:
    """Each method returns the actions that come of it.

    Args:
        session: The stream.
        schedule: The whole pipeline's text.
        control: As in ``Gpu``.
        holds_without_planner: As in ``Settings``.
        position, directives, clock, requests, reporter: The rank's.
    """

    def __init__(
        self,
        session: PlannerSession,
        *,
        schedule: str,
        control: str,
        holds_without_planner: bool,
        position: Position,
        directives: ClockDirectives,
        clock: HeldClock,
        requests: ClockRequests,
        reporter: Reporter,
    ) -> None:
        self._session = session
        self._schedule = schedule
        self._control = control
        self._holds_without_planner = holds_without_planner
        self._position = position
        self._directives = directives
        self._clock = clock
        self._requests = requests
        self._reporter = reporter
        self._is_planner_missed = False  # it is gone, and no iteration has begun since

    # ---- from the planner -------------------------------------------------------------------------------------------

    def connect(self) -> list[Action]:
        """A stream is open; the first action to send is the ``Attach``."""
        revision = self._directives.plan.table_revision
        return self._session.connect(iteration=self._position.iteration, table_revision=revision)

    def disconnect(self) -> None:
        """The stream is gone: a sweep ends with the clock it holds, a plan goes on or is released (``Settings``)."""
        self._directives.lose_planner(self._position.iteration)
        if self._session.is_attached and not self._holds_without_planner:
            self._directives.release()
            self._is_planner_missed = not self._requests.is_over
        self._session.disconnect()

    def apply(self, message: PlannerMessage) -> list[Action]:
        """Follow a message of the planner."""
        match message:
            case Attached():
                self._is_planner_missed = False
                self._directives.find_planner(self._position.iteration)
                self._directives.wants_timelines = message.wants_timelines
                return self._session.attached(message, self._reporter.unresolved)
            case ScheduleWanted():
                return self._session.say(ScheduleText(text=self._schedule))
            case Sweep() | StopSweep() | Probe() | PlanTable() | Switch():
                table = self._directives.plan.newest_table
                actions = self._directives.apply(message, self._position.iteration)
                newest = self._directives.plan.newest_table
                if newest is not None and newest != table:  # after a break, the same one may come again
                    self._reporter.expect(newest.expected)
                return actions
            case ProfileAck():
                self._session.acknowledge(message.sequence)
            case Release():
                self._directives.release()
                return [LogWarning(f"clocks released: {message.reason}")]
            case Refused():
                self._directives.release()
                actions = self._session.refused(message)
                return actions if message.retry else [*actions, LeavePlanner()]
        return []

    # ---- to the planner ---------------------------------------------------------------------------------------------

    def warn_of_absence(self) -> list[Action]:
        """An iteration begins: warn once if the planner is gone and clocks were released for it.

        Not before, since an embedded planner ends with its job while the last ranks still write.
        """
        if not self._is_planner_missed:
            return []
        self._is_planner_missed = False
        return [LogWarning("the job's planner is gone: clocks released until it is back")]

    def tell_telemetry(self) -> list[Action]:
        """Everything that is known by now, once the planner has accepted the stream: samples of before go first."""
        if not self._session.is_attached:
            return []
        control = "observe" if self._requests.refusal else self._control
        iteration = self._position.iteration
        return self._session.say(
            self._reporter.telemetry(iteration=iteration, control=control, trouble=self._trouble())
        )

    def tell_drift(self) -> list[Action]:
        """Instructions that have newly drifted by the end of this iteration."""
        actions: list[Action] = []
        for drift in self._reporter.drifts():
            actions += [LogDebug(drift_sentence(drift)), *self._session.say(drift)]
        return actions

    def tell_run_times(self, times: RunTimes) -> list[Action]:
        """A chosen iteration, once the planner has accepted the stream."""
        return self._session.say(times) if self._session.is_attached else []

    def tell_samples(self, samples: ProfileSamples) -> list[Action]:
        """Samples of a sweep, until they are acknowledged."""
        return self._session.put(samples)

    def tell_end(self, reason: str) -> list[Action]:
        """The trainer has ended."""
        return self._session.say(Goodbye(reason=reason))

    def _trouble(self) -> str:
        """The nearest cause of trouble, in a sentence; empty if there is none."""
        is_astray = self._position.num_mismatched >= _TROUBLED_ITERATIONS
        causes = (
            self._requests.refusal,
            f"the schedule does not fit: {self._position.mismatch}" if is_astray else "",
            self._directives.plan.trouble,
            self._clock.trouble,
            self._reporter.meter_trouble,
            self._directives.sweeper.trouble,
        )
        return next(filter(None, causes), "")
