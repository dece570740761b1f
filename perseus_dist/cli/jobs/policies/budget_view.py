"""Power budgets as tables for people, and as JSON."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perseus_dist.rpc.v1 import planner_pb2 as pb

_COLUMNS = (
    ("job", "job", "s"),
    ("slowdown [%]", "slowdown_percent", ".2f"),
    ("planned [W]", "planned_w", ",.0f"),
    ("measured [W]", "measured", "s"),
    ("at full clocks [W]", "full_w", ",.0f"),
    ("why", "why", "s"),
)


def budget_document(status: "pb.BudgetStatus") -> dict[str, Any]:
    """A budget and its group, for ``--json``; what is not known is null."""
    budget = status.budget
    return {
        "name": budget.name,
        "watts": budget.watts or None,
        "jobs": list(budget.jobs),
        "objective": budget.objective,
        "guard_band": budget.guard_band,
        "weights": {one.pattern: one.value for one in budget.weights},
        "max_slowdowns": {one.pattern: one.value for one in budget.max_slowdowns},
        "cap_w": status.cap_w or None,
        "load_target": status.load_target or None,
        "planned_w": status.planned_w,
        "measured_w": status.measured_w or None,
        "least_w": status.least_w or None,
        "weighted_slowdown": status.weighted_slowdown if status.HasField("weighted_slowdown") else None,
        "weighted_slowdown_bound": status.weighted_slowdown_bound
        if status.HasField("weighted_slowdown_bound")
        else None,
        "is_met": status.is_met,
        "troubles": list(status.troubles),
        "shares": [_share(share) for share in status.shares],
        "load_targets": [
            {
                "name": target.name,
                "start_s": target.start_s,
                "end_s": target.end_s,
                "watts": target.watts,
                "best_effort": target.best_effort,
            }
            for target in status.load_targets
        ],
    }


def format_budgets(budgets: "Sequence[pb.BudgetStatus]") -> str:
    """All, for people; ends in a line break."""
    from perseus_dist.library.tables import format_table

    texts = []
    for status in budgets:
        text = f"{_head(status)}\n"
        if status.shares:
            text += format_table(_COLUMNS, [_row(share) for share in status.shares]) + _certificate(status)
        texts.append(text + "".join(f"{trouble}\n" for trouble in status.troubles) + _load_targets(status))
    return "\n".join(texts)


def _head(status: "pb.BudgetStatus") -> str:
    jobs = " ".join(status.budget.jobs) or "all jobs"
    cap = f"{status.cap_w:,.0f} W" if status.cap_w else "no cap now"
    by = f" by load target {status.load_target}" if status.load_target else ""
    band = f", guard band {100 * status.budget.guard_band:g} %" if status.budget.guard_band else ""
    measured = f"{status.measured_w:,.0f} W" if status.measured_w else "unknown"
    return f"{status.budget.name} ({jobs}): {cap}{by}{band}; {status.planned_w:,.0f} W planned, {measured} measured"


def _certificate(status: "pb.BudgetStatus") -> str:
    """The slowdown that is least, beside its bound; empty without a cap."""
    if not status.HasField("weighted_slowdown"):
        return ""
    what = "largest weighted slowdown" if status.budget.objective == "max-min" else "sum of weighted slowdowns"
    return f"{what} {100 * status.weighted_slowdown:.3f} %, at best {100 * status.weighted_slowdown_bound:.3f} %\n"


def _load_targets(status: "pb.BudgetStatus") -> str:
    def local(time_s: float) -> str:
        return datetime.fromtimestamp(time_s).astimezone().isoformat(timespec="seconds")

    return "".join(
        f"load target {target.name}: {target.watts:,.0f} W from {local(target.start_s)} to {local(target.end_s)}"
        f"{', best effort' if target.best_effort else ''}\n"
        for target in status.load_targets
    )


def _share(share: "pb.BudgetShare") -> dict[str, Any]:
    return {
        "job": share.job_id,
        "slowdown_percent": 100 * share.slowdown,
        "planned_w": share.planned_w,
        "measured_w": share.measured_w or None,
        "full_w": share.full_w,
        "is_paced": share.is_paced,
        "holds_probes": share.holds_probes,
        "reason": share.reason or None,
    }


def _row(share: "pb.BudgetShare") -> dict[str, Any]:
    own = "slowed by the budget" if share.is_paced else "not slowed by the budget"
    return {
        "job": share.job_id,
        "slowdown_percent": 100 * share.slowdown,
        "planned_w": share.planned_w,
        "measured": f"{share.measured_w:,.0f}" if share.measured_w else "unknown",
        "full_w": share.full_w,
        "why": share.reason or own,
    }
