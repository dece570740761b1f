"""One of several choices for each member, at the least total cost within a limit of watts: exact to a tolerance.

A dynamic programme over total costs, in steps so small that all members' rounding together is within the tolerance: the
least watts at which the members so far cost no more (Ibarra and Kim, 1975, for knapsacks).
"""

from collections.abc import Sequence


def least_cost(
    costs: Sequence[Sequence[float]],
    watts: Sequence[Sequence[float]],
    limit_w: float,
    known_cost: float,
    tolerance: float,
) -> list[int] | None:
    """A choice whose cost is at most ``tolerance * known_cost`` above the least.

    Args:
        costs: Of each member's choices, 0 or more.
        watts: Of the same choices.
        limit_w: [W] of all together.
        known_cost: Positive; of a choice that keeps the limit.
        tolerance: Share of ``known_cost``; positive.

    Returns:
        Which choice of each; None where that of ``known_cost`` is within the tolerance.
    """
    import numpy as np  # which commands that share nothing need not load

    step = tolerance * known_cost / len(costs)
    num_steps = int(known_cost / step) + 1
    least_w = np.zeros(num_steps)  # at a cost of so many steps or fewer
    picked = []
    for member_costs, member_w in zip(costs, watts, strict=True):
        before_w, least_w = least_w, np.full(num_steps, np.inf)
        picks = np.zeros(num_steps, dtype=np.int32)
        for pick, (cost, power_w) in enumerate(zip(member_costs, member_w, strict=True)):
            if (at := int(cost / step)) < num_steps:
                found_w = before_w[: num_steps - at] + power_w
                is_less = found_w < least_w[at:]
                least_w[at:][is_less] = found_w[is_less]
                picks[at:][is_less] = pick
        picked.append(picks)
    within = np.flatnonzero(least_w <= limit_w)
    if not len(within):
        return None
    left, chosen = int(within[0]), []
    for member_costs, picks in zip(reversed(costs), reversed(picked), strict=True):
        chosen.append(int(picks[left]))
        left -= int(member_costs[chosen[-1]] / step)
    chosen.reverse()
    cost = sum(member_costs[pick] for member_costs, pick in zip(costs, chosen, strict=True))
    return chosen if cost < known_cost else None
