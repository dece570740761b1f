"""Price policies as tables for people, and as JSON."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perseus_dist.rpc.v1 import planner_pb2 as pb

_COLUMNS = (
    ("job", "job", "s"),
    ("done", "done", ",.0f"),
    ("slowdown [%]", "slowdown_percent", ".2f"),
    ("per kWh now", "price", "s"),
    ("done by", "finish", "s"),
    ("why", "why", "s"),
)


def price_document(status: "pb.PriceStatus") -> dict[str, Any]:
    """A price policy and its jobs, for ``--json``; what is not known is null."""
    policy = status.policy
    return {
        "name": policy.name,
        "signal": policy.signal,
        "deadline_s": policy.deadline_s,
        "iterations": policy.iterations,
        "trouble": status.trouble or None,
        "forecast_error": {
            "mean_kwh": status.forecast_error.mean_kwh,
            "percent": status.forecast_error.percent,
            "hours": status.forecast_error.hours,
        }
        if status.HasField("forecast_error")
        else None,
        "jobs": [
            {
                "job": job.job_id,
                "iterations_done": job.iterations_done,
                "slowdown_percent": 100 * job.slowdown,
                "is_paced": job.is_paced,
                "price_kwh": job.price_kwh if job.HasField("price_kwh") else None,
                "finish_s": job.finish_s or None,
                "is_on_time": job.is_on_time,
                "is_over": job.is_over,
                "reason": job.reason or None,
                "budget": job.budget or None,
            }
            for job in status.jobs
        ],
    }


def format_prices(prices: "Sequence[pb.PriceStatus]") -> str:
    """All, for people; ends in a line break."""
    from perseus_dist.library.tables import format_table

    texts = []
    for status in prices:
        policy = status.policy
        head = (
            f"{policy.name}: {policy.iterations:,} iterations by {_local(policy.deadline_s)}, signal {policy.signal}\n"
        )
        table = format_table(_COLUMNS, [_row(job) for job in status.jobs]) if status.jobs else ""
        trouble = f"{status.trouble}\n" if status.trouble else ""
        texts.append(head + table + _forecast_error(status) + trouble)
    return "\n".join(texts)


def _forecast_error(status: "pb.PriceStatus") -> str:
    from perseus_dist.policies.forecast_error import ForecastError

    error = status.forecast_error
    if not status.HasField("forecast_error"):
        return ""
    return f"{ForecastError(mean_kwh=error.mean_kwh, percent=error.percent, hours=error.hours).text}\n"


def _row(job: "pb.PricedJob") -> dict[str, Any]:
    own = "slower than its target" if job.is_paced else "at its own target"
    return {
        "job": job.job_id,
        "done": job.iterations_done,
        "slowdown_percent": 100 * job.slowdown,
        "price": f"{job.price_kwh:g}" if job.HasField("price_kwh") else "unknown",
        "finish": _local(job.finish_s) if job.finish_s else "unknown",
        "why": f"slowed by the budget {job.budget}" if job.budget else job.reason or own,
    }


def _local(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).astimezone().isoformat(timespec="seconds")
