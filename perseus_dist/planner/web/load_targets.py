"""Form of a load target: watts of a budget's group between two moments, which are in UTC."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from perseus_dist.number_text import read_real
from perseus_dist.planner.job.facts.policies import LoadTargetSet
from perseus_dist.planner.runtime.policy_calls import MAX_BUDGET_W
from perseus_dist.rpc.fields import check_job_id
from perseus_dist.rpc.violations import Checker

_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?")  # as browsers send it


def load_target_of(form: Mapping[str, str], now_s: float) -> LoadTargetSet:
    """The load target of a form, checked as one that comes over gRPC.

    Args:
        form: ``budget``, ``name``, ``watts`` and ``end``; ``start``, from now on without, and ``best_effort``.
        now_s: Unix time.

    Raises:
        InvalidMessageError: A field is missing or makes no sense.
    """
    check = Checker()
    target = LoadTargetSet(
        name=check_job_id(check, "name", form.get("name", "")),
        budget=check_job_id(check, "budget", form.get("budget", "")),
        start_s=_moment(check, "start", form["start"]) if "start" in form else now_s,
        end_s=_moment(check, "end", form.get("end", "")),
        watts=_watts(check, form.get("watts", "")),
        best_effort=form.get("best_effort") == "yes",
    )
    check.finish()
    if not target.start_s < target.end_s:
        check.violated("end", form["end"], "a time after the begin")
        check.finish()
    return target


def named_load_target(form: Mapping[str, str]) -> tuple[str, str]:
    """The names of the budget and of its load target that a form is to cancel.

    Raises:
        InvalidMessageError: One is no name.
    """
    check = Checker()
    names = tuple(check_job_id(check, field, form.get(field, "")) for field in ("budget", "name"))
    check.finish()
    return names[0], names[1]


def _watts(check: Checker, text: str) -> float:
    try:
        watts = read_real(text, 0.0, MAX_BUDGET_W)
    except ValueError:
        watts = 0.0
    if not watts:
        check.violated("watts", text, f"a number above 0 and up to {MAX_BUDGET_W:g}")
    return watts


def _moment(check: Checker, field: str, text: str) -> float:
    """[s] Unix time."""
    try:
        moment_s = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() if _MOMENT.fullmatch(text) else -1.0
    except ValueError:
        moment_s = -1.0
    if moment_s < 0:
        check.violated(field, text, "a date and a time in UTC, such as 2026-11-24T17:00")
    return moment_s
