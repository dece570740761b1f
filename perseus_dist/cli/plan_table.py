"""Plans beside all-max, in a table for people."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perseus_dist.cli.table import format_table
from perseus_dist.planning.plan import Plan
from perseus_dist.units import j_from_uj, s_from_ps

_COLUMNS = (  # header, key of a record, format
    ("plan", "name", "s"),
    ("time\n[s]", "time_s", ".6f"),
    ("slowdown\n[%]", "slowdown_percent", "+z.3f"),
    ("energy\n[J]", "energy_j", ".2f"),
    ("saving\n[%]", "saving_percent", "z.2f"),
    ("above bound\n[%]", "gap_percent", "z.3f"),
    ("clock changes\nper rank", "changes", ">s"),
)


def format_plans(plans: Mapping[str, Plan]) -> str:
    """A line for all-max, waiting for the straggler of the first plan if there is one, then one for each named plan."""
    first = next(iter(plans.values()))
    all_max = replace(first, execution=first.frontier.baseline)
    return format_table(_COLUMNS, [_record("all-max", all_max), *(_record(*item) for item in plans.items())])


def _record(name: str, plan: Plan) -> dict[str, Any]:
    changes = plan.execution.changes
    low, high = int(changes.min()), int(changes.max())
    return {
        "name": name,
        "time_s": float(s_from_ps(plan.execution.time_ps)),
        "slowdown_percent": 100 * plan.slowdown_share,
        "energy_j": float(j_from_uj(plan.energy_uj)),
        "saving_percent": 100 * plan.saving_share,
        "gap_percent": 100 * plan.gap_share,
        "changes": f"{low}" if low == high else f"{low}-{high}",
    }
