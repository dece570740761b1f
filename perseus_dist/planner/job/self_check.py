"""The self-check: what the profile predicts of iterations, beside what is measured of them, and what explains the rest.

Two kinds of iterations are compared, those at full clocks and those under the plan in force. What they differ by is
divided by what is known from outside:

    instructions  take longer than the profile says at the same clocks, at full clocks too: the profile is of other work
    transfers     longer at full clocks too, as transfers are slower in some microbatches than in others
    between       the same, and in neither: transfers that the profile does not know
    clocks        longer under the plan alone, in the instructions: clocks come later than the plan counts on, or the
                  profile is wrong at these clocks
    unknown       the rest

A pure value: every number is an argument, so that tests invent them.
"""

import math
from dataclasses import astuple, dataclass, field

LIMIT = 0.01
"""Share of the predicted time by which iterations may last longer or shorter, before it is said."""
_Z = 4.0
_MEDIAN_INFLATION = math.pi / 2  # variance of a median over that of a mean
_TOLD_STEP = 0.005  # a sentence is said anew where the share has moved by this


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Iterations of one kind.

    Attributes:
        predicted_s, predicted_j: [s], [J] one iteration of the whole job takes by the profile.
        measured_s, measured_j: [s], [J] the same as measured; 0 where that is not known.
        num_iterations: Measured ones.
    """

    predicted_s: float
    measured_s: float
    predicted_j: float = 0.0
    measured_j: float = 0.0
    num_iterations: int = 0

    @property
    def time_degree(self) -> float:
        """Measured over predicted; 0 where not both are known."""
        return self.measured_s / self.predicted_s if self.predicted_s > 0 else 0.0

    @property
    def energy_degree(self) -> float:
        """The same of energies."""
        return self.measured_j / self.predicted_j if self.predicted_j > 0 else 0.0

    @property
    def error(self) -> float:
        """Share of the predicted time that iterations last longer, less than 0 where they are shorter."""
        return self.time_degree - 1 if self.time_degree else 0.0

    def doubt(self, noise: float) -> float:
        """By how much that may be wrong, by the standard deviation of one iteration's time, as a share of it."""
        return _Z * noise * math.sqrt(_MEDIAN_INFLATION / self.num_iterations) if self.num_iterations else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Shares of the predicted time that a difference is made of; less than 0 where iterations are shorter for it."""

    instructions: float = 0.0
    transfers: float = 0.0
    between: float = 0.0
    clocks: float = 0.0
    unknown: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """Figures of one comparison.

    Attributes:
        full, plan: At full clocks, and under the plan in force; None where that is not measured.
        parts: Of the plan's difference; without a plan, of that at full clocks.
        doubt: Share by which the difference may be wrong, for noise.
    """

    full: Comparison | None = None
    plan: Comparison | None = None
    parts: Parts = Parts()
    doubt: float = 0.0

    @property
    def error(self) -> float:
        """Of the plan; without one, at full clocks."""
        judged = self.plan or self.full
        return judged.error if judged else 0.0

    @property
    def is_off(self) -> bool:
        """Whether measured and predicted times differ by more than the limit, noise aside."""
        return abs(self.error) - self.doubt > LIMIT

    @property
    def sentence(self) -> str:
        """For operators, without a full stop."""
        judged = self.plan or self.full
        assert judged is not None
        where = "under the plan" if self.plan else "at full clocks"
        longer = "longer" if judged.error > 0 else "shorter"
        also = f", {_percent(self.full.error)} at full clocks" if self.plan and self.full else ""
        return (
            f"iterations {where} take {100 * abs(judged.error):.1f} % {longer} than predicted, {judged.measured_s:.4f} "
            f"s instead of {judged.predicted_s:.4f} s{also}; {self._explained()}"
        )

    def moved_from(self, before: "SelfCheck") -> float:
        """The largest share by which the difference, or a part of it, is another one than before."""
        now, then = ((one.error, *astuple(one.parts)) for one in (self, before))
        return float(max(abs(new - old) for new, old in zip(now, then, strict=True)))

    def _explained(self) -> str:
        parts = (
            (self.parts.instructions, "instructions are not as in the profile"),
            (self.parts.transfers, "transfers that are slower in some microbatches than in others"),
            (self.parts.between, "transfers or other work between instructions that the profile does not know"),
            (self.parts.clocks, "clocks come later than the plan counts on, or the profile is wrong at them"),
            (self.parts.unknown, "unknown"),
        )
        told = [f"{_percent(share)} {what}" for share, what in parts if abs(share) >= max(self.doubt, 0.001)]
        known = f"of this {', '.join(told)}" if told else "no part of this stands out"
        return f"{known}; noise explains up to {100 * self.doubt:.1f} %"


def self_check(
    full: Comparison | None,
    plan: Comparison | None,
    *,
    noise: float,
    instructions: float,
    varying_transfers_s: float = 0.0,
) -> SelfCheck:
    """Compare, and take the difference apart.

    Args:
        full: Iterations at full clocks, or None.
        plan: Those under the plan in force, or None.
        noise: Standard deviation of one iteration's time, as a share of it.
        instructions: Under the plan, times of a usual rank's instructions over the profile's at the clocks requested,
            minus 1; 0 where that is not known.
        varying_transfers_s: [s] of an iteration at full clocks, for transfers that are slower than their least.
    """
    judged = plan or full
    if judged is None:
        return SelfCheck()
    doubts = [one.doubt(noise) for one in (full, plan) if one]
    at_full = (full.measured_s - full.predicted_s) / judged.predicted_s if full else 0.0
    in_both = _common(at_full, instructions)
    only_planned = plan.error - at_full if plan else 0.0
    clocks = max(0.0, _common(only_planned, instructions - in_both))
    transfers = _common(at_full - in_both, varying_transfers_s / judged.predicted_s)
    between = at_full - in_both - transfers
    parts = Parts(
        instructions=in_both,
        transfers=transfers,
        between=between,
        clocks=clocks,
        unknown=only_planned - clocks if plan else 0.0,
    )
    return SelfCheck(full=full, plan=plan, parts=parts, doubt=math.hypot(*doubts) if plan and full else doubts[0])


def constant_s(full: Comparison, plan: Comparison | None, *, instructions: float) -> float:
    """[s] by which iterations last longer at full clocks and under the plan alike, beside what is in the instructions.

    Less than 0 where they are shorter; 0 where the two do not agree.

    Args:
        full: Iterations at full clocks.
        plan: Those under the plan in force; None where they are not known, and full clocks alone tell.
        instructions: As of ``self_check``.
    """
    found_s = []
    for one in (full, plan) if plan else (full,):
        excess_s = one.measured_s - one.predicted_s
        found_s.append(excess_s - _common(excess_s, instructions * one.predicted_s))
    return found_s[0] if plan is None else _common(*found_s)


@dataclass(slots=True, kw_only=True)
class SelfCheckWatch:
    """The self-check of one table, as it goes on.

    Attributes:
        latest: Figures.
        sentence: Said of them where they are off; empty where they are not.
        is_logged: Whether it was said in the log.
    """

    latest: SelfCheck = field(default_factory=SelfCheck)
    sentence: str = ""
    is_logged: bool = False
    _told: SelfCheck = field(default_factory=SelfCheck)

    def update(self, found: SelfCheck) -> bool:
        """Take note of new figures; whether there is something to say for the first time."""
        self.latest = found
        if not found.is_off:
            if abs(found.error) <= LIMIT:
                self.sentence = ""
            return False
        if not self.sentence or found.moved_from(self._told) >= _TOLD_STEP:
            self.sentence, self._told = found.sentence, found
        was_logged, self.is_logged = self.is_logged, True
        return not was_logged


def _common(one: float, other: float) -> float:
    """The part that two differences have in common; 0 where they are of opposite signs."""
    if one * other <= 0:
        return 0.0
    least = min(abs(one), abs(other))
    return least if one > 0 else -least


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"
