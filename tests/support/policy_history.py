"""Policies and named tokens under strikes: what operators were told is set stays set, and what is cleared stays so.

Budgets and price policies are of jobs that never come, so that they move no job to another replica. A budget and a
price policy are set to other values and cleared, load targets come and go within a budget that stays, and each named
token is made once and revoked once. A token that was acknowledged opens the planner, and one whose revocation was
acknowledged opens it no more.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from perseus_dist.planner.access.private_file import write_private
from perseus_dist.rpc.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from planner_history import History, Register

COVERED = "absent-*"
PRICED = "absent-1"
MOVING, MOVED = "moving", "job-1"  # a budget that takes a job to the replica that keeps the policies
SIGNAL = "prices.csv"
TOKEN = "the-operators-of-a-campaign"
LATER_S = 30 * 86_400.0
EVERY_S = 0.05
PATIENCE_S = 60.0
_DAY_MINUTES = 1440
_NO_SUCH = grpc.StatusCode.NOT_FOUND
_CLOSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)

Call = Callable[[], Awaitable[object]]


def prepare(folder: Path) -> tuple[str, ...]:
    """Give a planner that is to start in a folder the campaign's token and signal; options for its command line."""
    folder.mkdir(mode=0o700, exist_ok=True)
    write_private(folder / "operator-token", f"{TOKEN}\n")
    signals = folder / "signals"
    signals.mkdir()
    write_signal(signals, time.time())
    return ("--signals", str(signals))


def write_signal(folder: Path, unix_s: float) -> None:
    """Write the campaign's signal, which is known from before a moment on."""
    begin = datetime.fromtimestamp(unix_s - LATER_S, UTC).isoformat()
    (folder / SIGNAL).write_text(f"timestamp,duration,value\n{begin},{200 * _DAY_MINUTES},0.1\n")


def metadata(token: str = TOKEN) -> tuple[tuple[str, str], ...]:
    """Of a call by whoever has a token."""
    return (("authorization", f"Bearer {token}"),)


@dataclass(slots=True)
class Token:
    """A named token, whose state only ever goes on: 0.0 none, 1.0 it counts, 2.0 it is revoked.

    What was not acknowledged may become true later: one replica alone may have it, until the database is back.

    Attributes:
        possible: States that it may be in.
        secret: That opens the planner; empty while it is not known.
    """

    possible: set[float] = field(default_factory=lambda: {0.0})
    secret: str = ""

    async def write(self, value: float, call: Call) -> bool:
        """As ``Register``."""
        self.possible.add(value)
        try:
            await call()
        except grpc.aio.AioRpcError:
            return False
        return self.read(value)

    def read(self, value: float) -> bool:
        """As ``Register``."""
        holds = value in self.possible
        self.possible = {one for one in self.possible if one >= value} or {value}
        return holds


@dataclass(slots=True, kw_only=True)
class PolicyHistory:
    """Registers of policies and tokens of a campaign."""

    history: "History"
    make_register: Callable[[], "Register"]
    timeout_s: float
    every_s: float = EVERY_S
    begin_s: float = field(default_factory=time.time)
    tokens: dict[str, Token] = field(default_factory=dict)
    registers: dict[str, "Register"] = field(default_factory=dict)
    _later_s: float = 0.0

    def __post_init__(self) -> None:
        self._later_s = float(round(self.begin_s + LATER_S))
        self.registers = {name: self.make_register() for name in ("group", "budget", "load target", "price policy")}

    async def operate(self, stub: Any, chance: random.Random) -> None:
        """Change policies and tokens, one call after the other, for ever."""
        call = partial(self._call, stub)
        while True:
            await asyncio.sleep(self.every_s * chance.uniform(0.2, 2.0))
            watts, number = float(chance.randint(1000, 900_000)), chance.randrange(8)
            if self.registers["group"].possible != {1.0}:  # until it is known to be there, load targets have no place
                budget = pb.Budget(name="group", watts=1.0, jobs=[COVERED], objective="total")
                await self._change("group", 1.0, "SetBudget", budget_text("group", 1.0), call, budget=budget)
                continue
            match number:
                case 0:
                    budget = pb.Budget(name="kills", watts=watts, jobs=[COVERED], objective="total")
                    await self._change("budget", watts, "SetBudget", budget_text("kills", watts), call, budget=budget)
                case 1:
                    await self._change("budget", 0.0, "ClearBudget", "none", call, name="kills")
                case 2 | 3:
                    target = pb.LoadTarget(
                        name="peak",
                        budget="group",
                        start_s=self._later_s,
                        end_s=self._later_s + 60,
                        watts=watts,
                        best_effort=True,
                    )
                    text = self._load_target_text(watts)
                    await self._change("load target", watts, "SetLoadTarget", text, call, load_target=target)
                case 4:
                    await self._change("load target", 0.0, "ClearLoadTarget", "none", call, budget="group", name="peak")
                case 5:
                    policy = pb.PricePolicy(
                        name="kills", jobs=[PRICED], signal=SIGNAL, deadline_s=self._later_s, iterations=int(watts)
                    )
                    text = self._price_text(watts)
                    await self._change("price policy", watts, "SetPricePolicy", text, call, policy=policy)
                case 6:
                    await self._change("price policy", 0.0, "ClearPricePolicy", "none", call, name="kills")
                case _:
                    await self._change_token(call, chance)

    async def check(self, stub: Any) -> None:
        """Ask which policies and tokens there are, and whether the tokens open what they should."""
        status = await self._until_answered(stub, "GetPolicy", pb.GetPolicyRequest())
        budgets = {one.budget.name: one for one in status.budgets}
        targets = {one.name: one.watts for one in budgets["group"].load_targets} if "group" in budgets else {}
        found = {
            "group": float("group" in budgets),
            "budget": budgets["kills"].budget.watts if "kills" in budgets else 0.0,
            "load target": targets.get("peak", 0.0),
            "price policy": next((float(one.policy.iterations) for one in status.prices), 0.0),
        }
        for name, value in found.items():
            possible = sorted(self.registers[name].possible)
            if not self.registers[name].read(value):
                self.history.breaches.append(f"{name}: saw {value:g}, expected one of {possible}")
        states = await self._token_states(stub)
        for name, token in self.tokens.items():
            possible = sorted(token.possible)
            if not token.read(states.get(name, 0.0)):
                self.history.breaches.append(f"token {name}: saw {states.get(name, 0.0):g}, expected one of {possible}")
        for name in list(self.tokens)[-4:]:
            await self._check_opens(stub, name)
        self.history.counts["policies and tokens read after a restart"] += 1

    async def _token_states(self, stub: Any) -> dict[str, float]:
        """The states of all tokens; those of replicas that were away take a moment to come to the others."""
        until_s = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            listed = (await self._until_answered(stub, "ListTokens", pb.ListTokensRequest())).grants
            states = {grant.name: 2.0 if grant.revoked_s else 1.0 for grant in listed}
            is_settled = all(states.get(name, 0.0) in token.possible for name, token in self.tokens.items())
            if is_settled or asyncio.get_running_loop().time() > until_s:
                return states
            await asyncio.sleep(0.1)

    async def _check_opens(self, stub: Any, name: str) -> None:
        token = self.tokens[name]
        if not token.secret or len(token.possible) > 1:
            return
        (state,) = token.possible
        try:
            await self._until_answered(stub, "GetPolicy", pb.GetPolicyRequest(), token.secret)
            opens = True
        except grpc.aio.AioRpcError as error:
            if error.code() not in _CLOSED:
                raise
            opens = False
        if opens != (state == 1.0):
            self.history.breaches.append(f"token {name}: opens the planner: {opens}, and is in state {state:g}")

    async def _change_token(self, call: Callable[..., Awaitable[Any]], chance: random.Random) -> None:
        living = [name for name, token in self.tokens.items() if token.possible == {1.0}]
        if living and chance.random() < 0.5:
            name = chance.choice(living)
            await self._revoke(name, call)
        else:
            await self._make_token(call)

    async def make_token(self, stub: Any) -> None:
        """Make one."""
        await self._make_token(partial(self._call, stub))

    async def _make_token(self, call: Callable[..., Awaitable[Any]]) -> None:
        name = f"token-{len(self.tokens)}"
        token = self.tokens[name] = Token()

        async def create() -> None:
            request = pb.CreateTokenRequest(name=name, role="view", jobs=[COVERED])
            token.secret = (await call("CreateToken", request)).token

        record = ("CreateToken", "", f"token {name}: view, {COVERED}")
        self.history.counts["tokens made"] += await self.history.change(token, 1.0, record, create)

    async def _revoke(self, name: str, call: Callable[..., Awaitable[Any]]) -> None:
        record = ("RevokeToken", "", "")
        revoke = partial(call, "RevokeToken", pb.RevokeTokenRequest(name=name))
        self.history.counts["tokens revoked"] += await self.history.change(self.tokens[name], 2.0, record, revoke)

    async def _change(
        self, kind: str, value: float, method: str, text: str, call: Callable[..., Awaitable[Any]], **fields: Any
    ) -> None:
        request = getattr(pb, f"{method}Request")(**fields)
        covered = PRICED if "Price" in method else COVERED
        change = partial(call, method, request)
        written = await self.history.change(self.registers[kind], value, (method, covered, text), change)
        self.history.counts[f"changes of a {kind}"] += written

    async def _call(self, stub: Any, method: str, request: object) -> Any:
        return await getattr(stub, method)(request, timeout=self.timeout_s, metadata=metadata())

    async def _until_answered(self, stub: Any, method: str, request: object, token: str = TOKEN) -> Any:
        """The answer, however long replicas are on their way."""
        until_s = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                return await getattr(stub, method)(request, timeout=self.timeout_s, metadata=metadata(token))
            except grpc.aio.AioRpcError as error:
                if error.code() in (_NO_SUCH, *_CLOSED) or asyncio.get_running_loop().time() > until_s:
                    raise
            await asyncio.sleep(0.1)

    def _load_target_text(self, watts: float) -> str:
        start, end = (datetime.fromtimestamp(self._later_s + more_s, UTC).isoformat() for more_s in (0, 60))
        return f"load target peak of budget group: {watts:g} W from {start} to {end}, best effort"

    def _price_text(self, iterations: float) -> str:
        deadline = datetime.fromtimestamp(self._later_s, UTC).isoformat()
        return f"price policy kills: {iterations:.0f} iterations of {PRICED} by {deadline}, signal {SIGNAL}"


def budget_text(name: str, watts: float, covered: str = COVERED) -> str:
    """As the audit record has a budget."""
    return f"budget {name}: {watts:g} W for {covered}, total, guard band 0"
