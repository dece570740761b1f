"""Faults of a job's agents, leases and planner, and of the network between them, in virtual time."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from perseus_dist.simulation.virtual.link import AGENT_NOTICES_NS
from perseus_dist.simulation.virtual.planner import VirtualPlanner
from perseus_dist.simulation.virtual.rank import VirtualRank
from perseus_dist.simulator.machine import SimulatedMachine


class FaultyJob(Protocol):
    """The part of a job that faults need."""

    machine: SimulatedMachine

    def touched(self) -> None:
        """Something was done from outside."""


class VirtualFaults:
    """Of one job. Every method acts at once; a fault of what is not there changes nothing."""

    def __init__(
        self, job: FaultyJob, ranks: Sequence[VirtualRank], planner: VirtualPlanner, incarnations: Iterator[int]
    ) -> None:
        self._job = job
        self._ranks = ranks
        self._planner = planner
        self._incarnations = incarnations

    # ---- agents

    def kill_agent(self, rank: int) -> None:
        """SIGKILL: its GPU is unlocked at once, its stream ends, and it takes what it knew with it."""
        self._ranks[rank].kill_agent(self._now_ns)
        self._job.touched()

    def stop_agent(self, rank: int) -> None:
        """SIGSTOP: its GPU is unlocked 2 s later, its stream is taken for dead 15 s later."""
        self._ranks[rank].stop_agent(self._now_ns)
        self._job.touched()

    def continue_agent(self, rank: int) -> None:
        """SIGCONT: it finds all boundaries that were passed meanwhile, as if they were passed now."""
        self._ranks[rank].continue_agent(self._now_ns)
        self._job.touched()

    def restart_agent(self, rank: int) -> None:
        """After a kill: an agent of another incarnation, which sees what is passed from now on."""
        is_there = self._planner.is_alive
        self._ranks[rank].start_agent(self._now_ns, next(self._incarnations), is_planner_there=is_there)
        self._job.touched()

    # ---- leases

    def kill_lease(self, rank: int) -> None:
        """The holder of the lease dies: its GPU is unlocked, control is refused, and back 0.25 s later."""
        agent = self._ranks[rank].agent
        if agent is not None:
            agent.lease.lose(self._now_ns)
            agent.heed_control(self._now_ns)
        self._job.touched()

    def stop_lease(self, rank: int) -> None:
        """The holder does nothing any more; the clock stays what it is until the agent replaces it."""
        agent = self._ranks[rank].agent
        if agent is not None:
            agent.lease.stop_holder(self._now_ns)
        self._job.touched()

    def continue_lease(self, rank: int) -> None:
        """The lease holder goes on, with the request that it got last."""
        agent = self._ranks[rank].agent
        if agent is not None:
            agent.lease.continue_holder(self._now_ns)
        self._job.touched()

    # ---- the planner

    def kill_planner(self) -> None:
        """SIGKILL: all streams break, and what is not durable is lost."""
        self.continue_planner()
        self._planner.kill()
        for rank in self._ranks:
            rank.link.lose_planner(self._now_ns)
        self._job.touched()

    def restart_planner(self) -> None:
        """After a kill: it takes up what is durable, and agents find it when they try again."""
        self._planner.restart()
        for rank in self._ranks:
            rank.link.find_planner()
        self._job.touched()

    def stop_planner(self) -> None:
        """SIGSTOP: nothing is answered; agents take it for gone 10 s later. One that is dead has no process to stop."""
        if not self._planner.is_alive:
            return
        self._planner.stop()
        for rank in self._ranks:
            rank.link.cut("planner", self._now_ns)
        self._job.touched()

    def continue_planner(self) -> None:
        """SIGCONT: it finds all that was sent meanwhile."""
        self._planner.resume()
        for rank in self._ranks:
            rank.link.mend("planner", self._now_ns)
        self._job.touched()

    def fill_disk(self) -> None:
        """The planner's store can write nothing any more."""
        self._planner.store.is_full = True

    def free_disk(self) -> None:
        """The disk takes writes again; those that failed are made up for."""
        self._planner.store.is_full = False

    # ---- the network between one rank and the planner

    def delay_messages(self, rank: int, delay_s: float) -> None:
        """Every message that is sent from now on takes so long [s], in either direction; they stay in order.

        Where a round trip takes longer than the agent waits for a sign of life, each end takes the other for gone.
        """
        link = self._ranks[rank].link
        link.delay_ns = round(delay_s * 1e9)
        if 2 * link.delay_ns >= AGENT_NOTICES_NS:
            link.cut("delay", self._now_ns)
        else:
            link.mend("delay", self._now_ns)
        self._job.touched()

    def repeat_messages(self, rank: int, share: float) -> None:
        """This share of the messages that are sent from now on arrives twice, one right after the other."""
        self._ranks[rank].link.repeat_share = share

    def lose_messages(self, rank: int, share: float) -> None:
        """This share of the messages that are sent from now on is lost, and with each the stream that it was on."""
        self._ranks[rank].link.lose_share = share

    def cut_network(self, rank: int) -> None:
        """Nothing comes through; the agent takes the planner for gone 10 s later, the planner the agent 15 s later."""
        self._ranks[rank].link.cut("network", self._now_ns)
        self._job.touched()

    def mend_network(self, rank: int) -> None:
        """Delayed messages come through, unless an end has given up."""
        self._ranks[rank].link.mend("network", self._now_ns)
        self._job.touched()

    def break_stream(self, rank: int) -> None:
        """The connection is reset: what is on its way is lost, and what is not acknowledged is sent again."""
        self._ranks[rank].link.break_now(self._now_ns)
        self._job.touched()

    @property
    def _now_ns(self) -> int:
        return self._job.machine.now_ns
