"""What the planner has told a rank to run at: the clock of a sweep where there is one, otherwise the plan's."""

from perseus_dist.agent.actions import Action, Say, Send
from perseus_dist.agent.plan_view import RELEASED, PlanView, Row
from perseus_dist.agent.sweep import Sweeper
from perseus_dist.messages import Gpu, PlanTable, Probe, Rank, StopSweep, Sweep, Switch, SwitchSeen

Order = Sweep | StopSweep | Probe | PlanTable | Switch


class Orders:
    """Takes orders and gives the clocks of each iteration.

    Attributes:
        plan: Tables and switches.
        sweeper: The sweep, and what it measures.
    """

    def __init__(self, *, rank: Rank, gpu: Gpu, num_instructions: int) -> None:
        self._num_instructions = num_instructions
        self.plan = PlanView(
            num_instructions=num_instructions, schedule_digest=rank.schedule_digest, clocks_mhz=gpu.clocks_mhz
        )
        self.sweeper = Sweeper(round(gpu.energy_period_s * 1e9))
        self._probed = range(0)  # iterations
        self._rows: dict[int, Row] = {}  # by iteration, since an order or an iteration's begin last changed any

    def row(self, iteration: int) -> Row:
        """The clocks of an iteration."""
        row = self._rows.get(iteration)
        if row is None:
            row = self._rows[iteration] = self._find_row(iteration)
        return row

    def begin_iteration(self, iteration: int, time_ns: int) -> None:
        """The rank is in step, in an iteration that may be a sweep's."""
        self.sweeper.begin_iteration(iteration, time_ns)
        self._rows.clear()

    def _find_row(self, iteration: int) -> Row:
        clock_mhz = self.sweeper.clock_mhz(iteration)
        if clock_mhz is not None:
            return Row(clocks_mhz=(clock_mhz,) * self._num_instructions)
        return RELEASED if iteration in self._probed else self.plan.row(iteration)

    def take(self, order: Order, iteration: int) -> list[Action]:
        """Follow an order, unless a newer one is known.

        Args:
            order: As the planner sent it.
            iteration: Begun last.
        """
        self._rows.clear()
        match order:
            case Sweep():
                self.sweeper.start(order, iteration)
                return [Say(_sweep_sentence(order))]
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
            self.plan.take_table(order, iteration)
        else:
            self.plan.take_switch(order, iteration)
        return self._answer(order, before)

    def release(self) -> None:
        """No clocks at once, until the next switch or sweep."""
        self._rows.clear()
        self._probed = range(0)
        self.plan.release()
        self.sweeper.abandon()

    def _answer(self, order: PlanTable | Switch, before: Switch | None) -> list[Action]:
        followed, newest = self.plan.followed, self.plan.newest_switch
        if followed is not None and followed != before:
            return [_seen(followed), Say(_switch_sentence(followed))]
        # One that is told again wants its answer again: the first may have been lost. A planner that tells an older one
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
