"""The instructions that share a clock, and what each clock that they can share takes and draws.

Instructions of one group and curve, a *class*, last equally long under any choice. So a path through the DAG is, to
the choice of clocks, no more than how many instructions of each class it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_dist.errors import PlanningError
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.profile.cost_curve import CostCurve
from perseus_dist.planning.schedule.dag import Int32Array
from perseus_dist.planning.schedule.granularity import Granularity, sharing
from perseus_dist.planning.schedule.instruction import profile_name
from perseus_dist.units import FloatArray, IntArray

NO_GROUP = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClockGroups:
    """A planning problem whose instructions share clocks.

    The choices of a group are clocks that all its instructions were measured at, from the highest down, without those
    that another one beats in time of every instruction and in energy. Where a group has fewer choices than others, its
    last one is repeated.

    Attributes:
        problem: The schedule and its cost curves.
        group_of: (num_instructions) int32, -1 for a constant, which no clock changes.
        num_choices: (num_groups) int32, distinct ones.
        fastest: (num_groups) int32, the choice at which no instruction takes longer than at the maximum clock.
        choice_uj: (num_groups, most_choices) [uJ] effective energy of all instructions of the group.
        choice_ps: (num_groups, most_classes, most_choices) [ps] of one instruction of each class; 0 beyond its classes.
        choice_index: Likewise int32, index into the clocks of the class's curve.
        class_of: (num_instructions) int32, below num_groups x most_classes: group by group; above: constants.
        constant_ps: (num_constant_classes) [ps].
        constant_uj: [uJ] effective energy of all constants.
    """

    problem: PlanningProblem
    group_of: Int32Array
    num_choices: Int32Array
    fastest: Int32Array
    choice_uj: IntArray
    choice_ps: IntArray
    choice_index: NDArray[np.int32]
    class_of: Int32Array
    constant_ps: IntArray
    constant_uj: int

    @property
    def num_groups(self) -> int:
        """Clocks that are chosen."""
        return len(self.num_choices)

    def clock_indices(self, chosen: IntArray) -> Int32Array:
        """(num_instructions) index into the clocks of each instruction's curve.

        Args:
            chosen: (num_groups) a choice of each group.
        """
        of_class = self.choice_index[np.arange(self.num_groups), :, chosen].reshape(-1)
        indices: Int32Array = np.append(of_class, np.zeros_like(self.constant_ps)).astype(np.int32)[self.class_of]
        return indices

    def energy_uj(self, chosen: IntArray) -> int:
        """[uJ] effective energy of a choice (num_groups) of each group, constants included."""
        return int(self.choice_uj[np.arange(self.num_groups), chosen].sum()) + self.constant_uj

    def mixed_ps(self, shares: FloatArray) -> IntArray:
        """(num_classes) [ps] of an instruction of each class.

        Args:
            shares: (num_groups, most_choices) share of each choice, of each group 1 in all.
        """
        mixed = np.rint(np.matmul(self.choice_ps, shares[:, :, None])).astype(np.int64)
        return np.append(mixed.reshape(-1), self.constant_ps)

    def chosen_ps(self, chosen: IntArray) -> IntArray:
        """(num_classes) [ps] of an instruction of each class under a choice (num_groups) of each group."""
        return np.append(self.choice_ps[np.arange(self.num_groups), :, chosen].reshape(-1), self.constant_ps)


def clock_groups(problem: PlanningProblem, granularity: Granularity, *, is_first_free: bool = False) -> ClockGroups:
    """Instructions grouped.

    Args:
        problem: The schedule and its cost curves.
        granularity: Of phases or of ranks.
        is_first_free: Whether the first computation of every phase but a pp_rank's first one has a group of its own. A
            change of clocks that comes late reaches the middle of that computation and no other, so that no plan with
            such changes draws less than the best one with these groups.

    Raises:
        PlanningError: The computations of a group were not measured at the same maximum clock.
    """
    group_of = _group_of(problem, granularity, is_first_free=is_first_free)
    num_groups = 1 + int(group_of.max())
    pairs, pair_of, counts = np.unique(
        np.stack([group_of, problem.curve_of]), axis=1, return_inverse=True, return_counts=True
    )
    members: list[list[int]] = [[] for _ in range(num_groups)]
    constants: list[int] = []
    for pair, group in enumerate(pairs[0].tolist()):
        (constants if group == NO_GROUP else members[group]).append(pair)
    curves = [problem.curves[curve] for curve in pairs[1].tolist()]
    choices = [_choices([curves[pair] for pair in pairs_of], counts[pairs_of]) for pairs_of in members]
    most_classes, most_choices = max(map(len, members)), max(len(indices[0]) for indices in choices)
    choice_uj = np.zeros((num_groups, most_choices), dtype=np.int64)
    choice_ps = np.zeros((num_groups, most_classes, most_choices), dtype=np.int64)
    choice_index = np.zeros((num_groups, most_classes, most_choices), dtype=np.int32)
    fastest = np.zeros(num_groups, dtype=np.int32)
    class_of_pair = np.zeros(len(curves), dtype=np.int32)
    for group, (pairs_of, indices) in enumerate(zip(members, choices, strict=True)):
        for number, (pair, index) in enumerate(zip(pairs_of, indices, strict=True)):
            padded = np.append(index, np.repeat(index[-1:], most_choices - len(index)))
            choice_uj[group] += counts[pair] * curves[pair].effective_uj[padded]
            choice_ps[group, number] = curves[pair].durations_ps[padded]
            choice_index[group, number] = padded
            class_of_pair[pair] = group * most_classes + number
        at_max_ps = np.array([curves[pair].durations_ps[0] for pair in pairs_of])
        fastest[group] = np.argmax((choice_ps[group, : len(pairs_of)] <= at_max_ps[:, None]).all(axis=0))
    class_of_pair[constants] = num_groups * most_classes + np.arange(len(constants))
    return ClockGroups(
        problem=problem,
        group_of=group_of,
        num_choices=np.array([len(indices[0]) for indices in choices], dtype=np.int32),
        fastest=fastest,
        choice_uj=choice_uj,
        choice_ps=choice_ps,
        choice_index=choice_index,
        class_of=class_of_pair[pair_of.reshape(-1)],
        constant_ps=np.array([curves[pair].durations_ps[0] for pair in constants], dtype=np.int64),
        constant_uj=sum(int(counts[pair] * curves[pair].effective_uj[0]) for pair in constants),
    )


def _choices(curves: Sequence[CostCurve], counts: IntArray) -> list[IntArray]:
    """By curve, the indices of the clocks that the group can choose from."""
    highest = {int(curve.clocks_mhz[0]) for curve in curves}
    if len(highest) > 1:
        seen = ", ".join(f"stage {c.stage} {profile_name(c.kind)} {int(c.clocks_mhz[0])} MHz" for c in curves)
        raise PlanningError(
            f"maximum clocks of one rank's stages: saw {seen}, expected one clock that all of them were measured at; "
            "profile them at the same clocks, or plan a clock for each instruction"
        )
    common = sorted(set.intersection(*(set(curve.clocks_mhz.tolist()) for curve in curves)), reverse=True)
    indices = [np.searchsorted(-curve.clocks_mhz, -np.array(common)) for curve in curves]
    energies = [count * curve.effective_uj[index] for curve, index, count in zip(curves, indices, counts, strict=True)]
    durations = [curve.durations_ps[index] for curve, index in zip(curves, indices, strict=True)]
    kept = _undominated(np.stack([*durations, np.sum(energies, axis=0)]))
    return [index[kept] for index in indices]


def _group_of(problem: PlanningProblem, granularity: Granularity, *, is_first_free: bool) -> Int32Array:
    """(num_instructions) group, -1 for constants."""
    group_of = np.full(problem.num_instructions, NO_GROUP, dtype=np.int32)
    pp_rank = problem.dag.pp_rank
    number = 0
    before = -1
    for members in sharing(problem.dag.schedule, granularity):
        is_later = before == pp_rank[members[0]]
        before = pp_rank[members[0]]
        alone, others = (members[:1], members[1:]) if is_first_free and is_later else ([], members)
        for group in filter(None, (alone, others)):
            group_of[group] = number
            number += 1
    return group_of


def _undominated(columns: IntArray) -> IntArray:
    """Indices of the columns that no other one is at most as large as in every row; of equal ones the first."""
    no_larger = (columns[:, :, None] <= columns[:, None, :]).all(axis=0)  # [a, b]: a beats b, or they are equal
    number = np.arange(columns.shape[1])
    smaller = no_larger & ~(no_larger.T & (number[:, None] >= number))
    return np.flatnonzero(~smaller.any(axis=0))
