"""Clocks by time: a pure function, and an agent that follows random programs with it."""

import random
from array import array
from dataclasses import dataclass

import pytest

from perseus_dist.agent.core.actions import Action, RequestClock
from perseus_dist.agent.core.core import AgentCore
from perseus_dist.agent.following.moments import Change, clock_now
from perseus_dist.agent.following.plan_view import PlanView
from perseus_dist.boundaries.reader import TimedBoundary
from perseus_dist.boundaries.record import Boundary, Event
from perseus_dist.messages.from_planner import PlanTable, Switch
from perseus_dist.messages.terms import Gpu, Rank
from perseus_dist.planning.schedule.granularity import ITERATION
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH

CLOCKS_MHZ = (1410, 1305, 1200, 1095, 990)
SCHEDULE = "0F0 0F1 0B0 0B1\n"
MS = 1_000_000
RANK = Rank(
    job_id="job", rank=0, pp_rank=0, dp_rank=0, tp_rank=0, pp_size=1, dp_size=1, tp_size=1,
    schedule_digest="0f" * 32, granularity="rank",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A point of a table: clocks, and when all but the first are asked for."""

    clocks_mhz: tuple[int, ...]
    moments_ns: tuple[int, ...]

    def clock_mhz(self, since_begin_ns: int) -> int:
        """Counted in another way than the agent does."""
        return self.clocks_mhz[sum(moment_ns <= since_begin_ns for moment_ns in self.moments_ns)]


def drawn(chance: random.Random) -> Program:
    num = chance.randrange(0, 4)
    moments_ns = sorted(chance.choice((0, chance.randrange(300 * MS))) for _ in range(num))
    return Program(clocks_mhz=tuple(chance.choices(CLOCKS_MHZ, k=num + 1)), moments_ns=tuple(moments_ns))


def table_of(program: Program, revision: int) -> PlanTable:
    """With a row before the program's, so that rows are told apart."""
    num = len(program.moments_ns)
    return PlanTable(
        revision=revision,
        num_points=2,
        num_instructions=num + 1,
        clocks_mhz=array("H", (*(CLOCKS_MHZ[-1],) * (num + 1), *program.clocks_mhz)).tobytes(),
        times_s=(1.0, 2.0),
        energies_j=(2.0, 1.0),
        expected=(),
        switch_latency_s=0.01,
        schedule_digest=RANK.schedule_digest,
        moments_ns=(*range(num), *program.moments_ns),
    )


def switch_to(revision: int, iteration: int = 0) -> Switch:
    return Switch(table_revision=revision, point=1, effective_iteration=iteration, switch_revision=revision)


class Follower:
    """An agent's core whose requests are answered at once."""

    def __init__(self) -> None:
        gpu = Gpu(uuid="GPU-0", name="A100", driver_version="1", clocks_mhz=CLOCKS_MHZ, control="direct")
        self.core = AgentCore(rank=RANK, schedule=SCHEDULE, gpu=gpu, incarnation=1)
        self.clock_mhz: int | None = None
        self._sequence = 0
        self.do(self.core.on_connected(0))

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, RequestClock):
                self.clock_mhz = action.clock_mhz

    def plan(self, program: Program, revision: int, now_ns: int, *, iteration: int = 0) -> None:
        self.do(self.core.on_message(table_of(program, revision), now_ns))
        self.do(self.core.on_message(switch_to(revision, iteration), now_ns))

    def pass_boundaries(self, now_ns: int, iteration: int, *events: Event) -> None:
        passed = []
        for event in events:
            self._sequence += 1
            kind = ITERATION if event in (Event.BEGIN, Event.END) else ""
            boundary = Boundary(self._sequence, event, kind, 0, NO_MICROBATCH, iteration, now_ns)
            passed.append(TimedBoundary(boundary, now_ns))
        self.do(self.core.on_boundaries(passed, now_ns))

    def begin(self, now_ns: int, iteration: int) -> None:
        self.pass_boundaries(now_ns, iteration, Event.ITERATION_BEGIN, Event.BEGIN)

    def end(self, now_ns: int, iteration: int) -> None:
        self.pass_boundaries(now_ns, iteration, Event.END, Event.ITERATION_END)


def test_the_clock_of_a_moment() -> None:
    changes = (Change(10, 1200), Change(20, 1305), Change(20, 990))
    seen = [clock_now(1410, changes, since_ns) for since_ns in (-5, 0, 9, 10, 19, 20, 10**12)]
    assert seen == [(1410, 10), (1410, 10), (1410, 10), (1200, 20), (1200, 20), (990, None), (990, None)]
    assert clock_now(1410, (), 5) == (1410, None)
    assert clock_now(1410, (Change(3, 0), Change(4, 1200), Change(5, 0)), 9) == (1200, None)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_are_followed_however_late_alarms_are(seed: int) -> None:
    """Also where iterations end before the last moment, and where another plan comes in mid-iteration."""
    chance = random.Random(seed)
    follower, now_ns, revision = Follower(), 0, 1
    follower.begin(now_ns, 0)
    program = drawn(chance)
    follower.plan(program, revision, now_ns)
    now_ns += 50 * MS
    follower.end(now_ns, 0)
    for iteration in range(1, 12):
        now_ns += chance.choice((0, 5 * MS))
        begin_ns, following = now_ns, program
        follower.begin(now_ns, iteration)
        end_ns = begin_ns + chance.randrange(1, 350 * MS)
        looks_ns = sorted(chance.randrange(begin_ns, end_ns) for _ in range(chance.randrange(3)))
        while True:
            assert follower.clock_mhz == program.clock_mhz(now_ns - begin_ns)
            due_ns = follower.core.next_timer_ns()
            assert due_ns is not None
            left_ns = [at_ns for at_ns in (begin_ns + one_ns for one_ns in program.moments_ns) if at_ns > now_ns]
            assert not left_ns or due_ns <= left_ns[0]
            alarm_ns = max(due_ns, now_ns + 1) + chance.choice((0, chance.randrange(10 * MS)))
            next_ns = min(alarm_ns, *looks_ns[:1], end_ns)
            if next_ns == end_ns:
                break
            now_ns = max(now_ns, next_ns)
            if looks_ns and next_ns == looks_ns[0]:
                looks_ns.pop(0)
                if chance.random() < 0.5:
                    revision += 1
                    following = drawn(chance)
                    follower.plan(following, revision, now_ns)
                    continue
            follower.do(follower.core.on_timer(now_ns))
        now_ns = end_ns
        program = following
        follower.end(now_ns, iteration)
        assert follower.clock_mhz == program.clocks_mhz[0]  # for the next one, which may begin at once


def test_an_iteration_out_of_step_has_no_clock_and_no_alarm() -> None:
    follower = Follower()
    follower.begin(0, 0)
    follower.plan(Program(clocks_mhz=(1200, 990), moments_ns=(40 * MS,)), 1, 0)
    follower.end(50 * MS, 0)
    follower.begin(60 * MS, 1)
    assert follower.clock_mhz == 1200
    follower.do(follower.core.on_lost_boundaries(1, 70 * MS))
    assert follower.clock_mhz is None
    follower.do(follower.core.on_timer(110 * MS))
    assert follower.clock_mhz is None
    follower.begin(120 * MS, 2)
    assert follower.clock_mhz == 1200
    follower.do(follower.core.on_timer(165 * MS))
    assert follower.clock_mhz == 990


def test_a_table_with_moments_that_do_not_fit_is_refused() -> None:
    program = Program(clocks_mhz=(1200, 990), moments_ns=(40 * MS,))
    fitting = table_of(program, 1)
    by_rank = PlanView(num_instructions=1, schedule_digest=RANK.schedule_digest, clocks_mhz=CLOCKS_MHZ)
    by_rank.apply_table(fitting, 0)
    assert not by_rank.trouble
    by_instruction = PlanView(num_instructions=2, schedule_digest=RANK.schedule_digest, clocks_mhz=CLOCKS_MHZ)
    by_instruction.apply_table(fitting, 0)
    assert "changes clocks by time" in by_instruction.trouble
