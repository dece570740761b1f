"""The planner's directives for a rank: the clock of a sweep where one runs, otherwise the plan's."""

from perseus_dist.agent.core.actions import Action, LogDebug, LogWarning, Send
from perseus_dist.agent.following.absence_guard import AbsenceGuard
from perseus_dist.agent.following.plan_view import RELEASED, PlanView, Row
from perseus_dist.agent.following.timed_runs import is_regular
from perseus_dist.agent.measuring.sweep import Sweeper
from perseus_dist.messages.from_agent import SwitchSeen
from perseus_dist.messages.from_planner import PlanTable, Probe, StopSweep, Sweep, Switch
from perseus_dist.messages.terms import NO_POINT, Gpu, Rank

Order = Sweep | StopSweep | Probe | PlanTable | Switch


class ClockDirectives:
    """Applies orders and gives the clocks of each iteration.

    Attributes:
        plan: Tables and switches.
        sweeper: The sweep, and what it measures.
        num_instructions: Of the rank's program.
        wants_timelines: Whether the planner has asked for times of iterations under a plan.
    """

    def __init__(self, *, rank: Rank, gpu: Gpu, num_instructions: int) -> None:
        self.num_instructions = num_instructions
        self.wants_timelines = False
        self.plan = PlanView(
            num_instructions=num_instructions, schedule_digest=rank.schedule_digest, clocks_mhz=gpu.clocks_mhz
        )
        self.sweeper = Sweeper(round(gpu.energy_period_s * 1e9))
        self._probed = range(0)  # iterations
        self._absence = AbsenceGuard()
        self._rows: dict[int, Row] = {}  # by iteration, since an order or an iteration's begin last changed any

    def row(self, iteration: int) -> Row:
        """The clocks of an iteration."""
        row = self._rows.get(iteration)
        if row is None:
            row = self._rows[iteration] = self._find_row(iteration)
        return row

    def is_free(self, iteration: int) -> bool:
        """Whether it runs at full clocks."""
        return self.row(iteration) == RELEASED

    def is_timed(self, iteration: int) -> bool:
        """Whether the planner wants its times: after a sweep, the last of a probe, and some under a plan if asked."""
        is_after_sweep = iteration == self.sweeper.end_iteration + 1  # clocks are at their highest as it begins
        is_last_probed = bool(self._probed) and iteration == self._probed[-1]
        is_planned = self.wants_timelines and self.row(iteration).point != NO_POINT
        return is_after_sweep or is_last_probed or (is_planned and is_regular(iteration))

    def is_at_full_clocks(self, iteration: int) -> bool:
        """Whether a probe, and no sweep, has brought all clocks to their highest before it begins."""
        return iteration in self._probed[1:] and self.is_free(iteration - 1) and self.is_free(iteration)

    def begin_iteration(self, iteration: int, time_ns: int) -> None:
        """The rank is in step, in an iteration that may be a sweep's."""
        self.sweeper.begin_iteration(iteration, time_ns)
        self._rows.clear()
        self._absence.begin_iteration(self.row(iteration), time_ns)

    def end_iteration(self, iteration: int, time_ns: int) -> list[Action]:
        """The rank is in step to its end."""
        was_on_time = not self._absence.verdict
        self._absence.end_iteration(iteration, time_ns)
        if was_on_time and self._absence.verdict:
            self._rows.clear()
            why = f"{self._absence.verdict} while the job's planner is away"
            return [LogWarning(f"{why}: clocks released until it is back")]
        return []

    def _find_row(self, iteration: int) -> Row:
        clock_mhz = self.sweeper.clock_mhz(iteration)
        if clock_mhz is not None:
            return Row(clocks_mhz=(clock_mhz,) * self.num_instructions)
        is_free = iteration in self._probed or self._absence.is_free(iteration)
        return RELEASED if is_free else self.plan.row(iteration)

    def apply(self, order: Order, iteration: int) -> list[Action]:
        """Follow an order, unless a newer one is known.

        Args:
            order: As the planner sent it.
            iteration: Begun last.
        """
        self._rows.clear()
        match order:
            case Sweep():
                self.sweeper.start(order, iteration)
                return [LogDebug(_sweep_sentence(order))]
            case StopSweep():
                self.sweeper.stop(order)
                return []
            case Probe():
                # An iteration that has begun goes on as it is.
                end = order.first_iteration + order.num_iterations
                self._probed = range(max(order.first_iteration, iteration + 1), end)
                return []
        before = self.plan.followed
        if isinstance(order, PlanTable):
            self.plan.apply_table(order, iteration)
        else:
            self.plan.apply_switch(order, iteration)
        return self._answer(order, before)

    def lose_planner(self, iteration: int) -> None:
        """The planner is gone: a sweep ends with the clock it holds, the plan goes on while it is on time.

        Args:
            iteration: Begun last.
        """
        self._rows.clear()
        self.sweeper.suspend(iteration)
        self._absence.leave(iteration)

    def find_planner(self, iteration: int) -> None:
        """The planner is there again."""
        self._rows.clear()
        self._absence.come_back(iteration)

    def release(self) -> None:
        """No clocks at once, until the next switch or sweep."""
        self._rows.clear()
        self._probed = range(0)
        self.plan.release()
        self.sweeper.abandon()

    def _answer(self, order: PlanTable | Switch, before: Switch | None) -> list[Action]:
        followed, newest = self.plan.followed, self.plan.newest_switch
        if followed is not None and followed != before:
            return [_seen(followed), LogDebug(_switch_sentence(followed))]
        # A repeated one wants its answer again: the first may have been lost. A planner that sends an older one
        # does not know of the newer, and can go beyond it only once it does.
        if newest is None or not isinstance(order, Switch):
            return []
        return [_seen(newest)] if order == followed or order.switch_revision < newest.switch_revision else []


def _seen(switch: Switch) -> Send:
    return Send(SwitchSeen(table_revision=switch.table_revision, switch_revision=switch.switch_revision))


def _sweep_sentence(sweep: Sweep) -> str:
    return (
        f"sweep {sweep.sweep_id}: {len(sweep.clocks_mhz)} clocks from iteration {sweep.first_iteration}, "
        f"{sweep.iterations_per_clock} iterations each"
    )


def _switch_sentence(switch: Switch) -> str:
    return (
        f"switch {switch.switch_revision}: point {switch.point} of table {switch.table_revision} from iteration "
        f"{switch.effective_iteration}"
    )
