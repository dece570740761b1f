"""A small report folder, as a job's agents leave it."""

import json
from pathlib import Path
from typing import Any

from malformed.rows import PROFILE

_SCHEDULE = "0F0 0B0\n"
_JOB: dict[str, Any] = {
    "job_id": "gpt",
    "phase": "done",
    "reason": "every rank's trainer has ended",
    "schedule": _SCHEDULE,
    "pp_size": 1,
    "dp_size": 1,
    "tp_size": 1,
    "num_ranks": 1,
    "target": "t_min",
    "simulated": True,
    "started_at": "2026-09-21T14:13:20.000+00:00",
    "updated_at": "2026-09-21T15:15:20.000+00:00",
    "phases": [
        {"phase": phase, "reason": phase, "at": f"2026-09-21T14:13:2{number}+00:00"}
        for number, phase in enumerate(("attaching", "warming_up", "profiling", "planning", "enforcing", "done"))
    ],
    "baseline": {"num_iterations": 5, "time_s": 0.25, "time_spread_s": 0.001, "energy_j": 100.0},
    "enforced": {"num_iterations": 6, "time_s": 0.25, "time_spread_s": 0.001, "energy_j": 90.0},
    "predicted_saving": 0.1,
    "predicted_saving_low": 0.08,
    "predicted_saving_high": 0.11,
    "fastest_s": 0.24,
    "t_star_s": 0.3,
    "table_revision": 1,
    "troubles": [],
    "pipelines": [{"dp_rank": 0, "attached_ranks": 1, "iteration": 19, "time_s": 0.25, "energy_j": 90.0}],
    "blocking_power_w": 80.0,
    "frontier_baseline_time_s": 0.25,
    "frontier_baseline_energy_j": 100.0,
}
_HEADER = {
    "rank": 0,
    "pp_rank": 0,
    "dp_rank": 0,
    "tp_rank": 0,
    "wall_minus_monotonic_ns": 0,
    "gpu": {"uuid": "GPU-0", "name": "NVIDIA A100", "control": "clockd", "refusal": ""},
    "simulated": True,
    "switch_latency_s": 0.01,
}
_EVENTS = (
    {"at": "2026-09-21T14:20:00+00:00", "kind": "straggler", "iteration": 15, "text": "rank 0 is slow", "rank": 0},
    {"at": "2026-09-21T14:21:00+00:00", "kind": "switch", "iteration": 16, "text": "all wait", "pipeline": 0},
)


def report_folder(folder: Path) -> dict[str, bytes]:
    """Make the folder; its files by name."""
    planned = [int(iteration >= 14) for iteration in range(20)]
    iterations = [
        {
            "iteration": iteration,
            "time_s": 0.25,
            "pipeline_time_s": 0.25,
            "energy_j": 100.0 - 10 * is_planned,
            "table_revision": is_planned,
            "point": 7 if is_planned else -1,
        }
        for iteration, is_planned in enumerate(planned)
    ]
    kept = [
        {
            "iteration": iteration,
            "begin_ns": iteration * 250_000_000,
            "end_ns": (iteration + 1) * 250_000_000,
            "table_revision": planned[iteration],
            "point": 7 if planned[iteration] else -1,
            "runs": [[0, 0, 100_000_000, 1410, 40.0], [1, 100_000_000, 240_000_000, 1410, 50.0]],
        }
        for iteration in (7, 8, 18, 19)
    ]
    texts = {
        "job.json": json.dumps(_JOB),
        "rank-0.jsonl": _lines(*iterations),
        "timeline-0.jsonl": _lines(_HEADER, *kept),
        "totals-0.json": json.dumps({"num_iterations": 20, "time_s": 5.0, "energy_j": 1940.0}),
        "profile.csv": PROFILE,
        "frontier.csv": "time_s,energy_j,lower_bound_j\n0.24,101.0,100.5\n0.25,90.0,89.8\n0.3,80.0,79.9\n",
        "events.jsonl": _lines(*_EVENTS),
        "injected.jsonl": _lines({"iteration": 9, "gpu": 0, "thermal_cap_mhz": 1005}),
    }
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: text.encode() for name, text in texts.items()}


def _lines(*documents: dict[str, Any]) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)
