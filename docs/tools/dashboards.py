"""Write Grafana's dashboards of the fleet, a job and a node into launch/grafana/dashboards.

    python docs/tools/dashboards.py [--check]

With ``--check`` nothing is written, and the exit code is 1 where a file is not what this script makes.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "launch" / "grafana" / "dashboards"
WIDTH, HEIGHT = 12, 8  # of a panel; a row is 24 wide
_DATA = {"type": "prometheus", "uid": "${datasource}"}
_JOB, _NODE = '{perseus_job="$perseus_job"}', '{instance="$instance"}'


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes:
        title: With the unit where Grafana has none for it.
        queries: Legend by query, in PromQL.
        unit: As Grafana calls it.
        kind: ``timeseries``, ``stat`` or ``table``.
    """

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"


def quantile(share: float, histogram: str, selector: str = "", window: str = "$__rate_interval") -> str:
    """The query of a quantile."""
    return f"histogram_quantile({share}, sum by (le) (rate({histogram}_bucket{selector}[{window}])))"


FLEET = (
    Panel("Planner", {'up{job="perseus-planner"}': "{{instance}}"}, kind="stat"),
    Panel("Alerts", {'ALERTS{alertname=~"Perseus.*"}': "{{alertname}} {{alertstate}}"}, kind="table"),
    Panel("Jobs by phase", {"sum by (phase) (perseus_jobs) > 0": "{{phase}}"}),
    Panel("Jobs", {"perseus_job_info": ""}, kind="table"),
    Panel("Ranks", {"sum(perseus_job_attached_ranks)": "attached", "sum(perseus_job_ranks)": "in all"}),
    Panel("Ranks by control", {"sum by (control) (perseus_job_controlled_ranks)": "{{control}}"}),
    Panel("Saved in this run", {"perseus_job_saved_joules": "{{perseus_job}}"}, unit="joule"),
    Panel("Saving, measured", {"perseus_job_measured_saving_ratio": "{{perseus_job}}"}, unit="percentunit"),
    Panel(
        "Time lost, as a share",
        {"rate(perseus_job_lost_seconds_total[$__rate_interval])": "{{perseus_job}}"},
        unit="percentunit",
    ),
    Panel("Stragglers waited for", {"perseus_job_stragglers": "{{perseus_job}}"}),
    Panel("GPUs slowed by heat or supply", {"perseus_job_throttled_gpus": "{{perseus_job}}"}),
    Panel("Clocks left locked", {"sum by (instance) (perseus_node_gpu_clocks_left_locked)": "{{instance}}"}),
    Panel(
        "Planning",
        {
            quantile(0.5, "perseus_planning_seconds", window="1h"): "median",
            quantile(0.95, "perseus_planning_seconds", window="1h"): "95 %",
        },
        unit="s",
    ),
    Panel(
        "Planning requests in a database's queue",
        {
            # Planners that share no queue have no such series.
            "max(perseus_queued_planning_requests) or vector(0)": "waiting",
            "max(perseus_queued_planning_seconds) or vector(0)": "the oldest has waited [s]",
            "max(perseus_queued_planning_requests_others) or vector(0)": "waiting, of other versions",
            "max(perseus_planning_workers_at_once) or vector(0)": "planned at once by workers",
        },
    ),
    Panel(
        "Agents' messages",
        {"sum by (kind) (rate(perseus_received_messages_total[$__rate_interval]))": "{{kind}}"},
        unit="reqps",
    ),
    Panel(
        "Operators' calls",
        {"sum by (method) (rate(perseus_operator_calls_total[$__rate_interval]))": "{{method}}"},
        unit="reqps",
    ),
    Panel("Refusals", {"sum by (code) (rate(perseus_refusals_total[$__rate_interval]))": "{{code}}"}, unit="reqps"),
    Panel("Event loop's lag", {"perseus_loop_lag_seconds": "{{instance}}"}, unit="s"),
    Panel("Planner's memory", {'process_resident_memory_bytes{job="perseus-planner"}': "{{instance}}"}, unit="bytes"),
)

JOB = (
    Panel("Job", {f"perseus_job_info{_JOB}": ""}, kind="table"),
    Panel("Phase", {f"perseus_job_phase{_JOB}": "{{phase}}"}, kind="stat"),
    Panel("Iteration, median", {f"perseus_job_median_iteration_seconds{_JOB}": "{{iterations}}"}, unit="s"),
    Panel(
        "Iterations",
        {
            quantile(0.5, "perseus_job_iteration_seconds", _JOB): "median",
            quantile(0.95, "perseus_job_iteration_seconds", _JOB): "95 %",
        },
        unit="s",
    ),
    Panel("Energy of an iteration", {f"perseus_job_median_iteration_joules{_JOB}": "{{iterations}}"}, unit="joule"),
    Panel(
        "Power, mean of iterations",
        {
            f"rate(perseus_job_energy_joules_total{_JOB}[$__rate_interval]) / "
            f"rate(perseus_job_iteration_seconds_sum{_JOB}[$__rate_interval])": "all GPUs"
        },
        unit="watt",
    ),
    Panel(
        "Saving",
        {
            f"perseus_job_predicted_saving_ratio{_JOB}": "predicted",
            f"perseus_job_measured_saving_ratio{_JOB}": "measured",
        },
        unit="percentunit",
    ),
    Panel(
        "Saved in this run",
        {f"perseus_job_saved_joules{_JOB}": "saved", f"perseus_job_saved_doubt_joules{_JOB}": "give or take"},
        unit="joule",
    ),
    Panel("Time lost", {f"perseus_job_lost_seconds_total{_JOB}": "in all"}, unit="s"),
    Panel("Guard", {f"perseus_job_probes_total{_JOB}": "probes", f"perseus_job_falls_total{_JOB}": "plans given up"}),
    Panel(
        "Target",
        {f"perseus_job_target_slowdown_ratio{_JOB} or perseus_job_target_deadline_seconds{_JOB}": "{{__name__}}"},
        kind="stat",
    ),
    Panel(
        "Measured over predicted",
        {f"perseus_job_measured_over_predicted_ratio{_JOB}": "{{iterations}}, {{quantity}}"},
        unit="percentunit",
    ),
    Panel("Clock by stage", {f"perseus_job_stage_clock_hertz{_JOB}": "stage {{pp_rank}}"}, unit="hertz"),
    Panel("Power of a GPU by stage", {f"perseus_job_stage_power_watts{_JOB}": "stage {{pp_rank}}"}, unit="watt"),
    Panel(
        "Pipelines, until gradient synchronisation",
        {f"perseus_job_pipeline_seconds{_JOB}": "{{pipeline}}", f"perseus_job_t_prime_seconds{_JOB} > 0": "T'"},
        unit="s",
    ),
    Panel("Slowest rank, times as long", {f"perseus_job_straggler_degree_ratio{_JOB}": "time over expected"}),
    Panel("Stragglers found", {f"perseus_job_straggler_verdicts_total{_JOB}": "{{cause}}"}),
    Panel(
        "Switches, until a rank has them",
        {quantile(0.95, "perseus_job_switch_confirmation_seconds", _JOB, window="1h"): "95 %"},
        unit="s",
    ),
    Panel(
        "Ranks",
        {
            f"perseus_job_attached_ranks{_JOB}": "attached",
            f"perseus_job_ranks{_JOB}": "in all",
            f"perseus_job_controlled_ranks{_JOB}": "{{control}}",
            f"perseus_job_throttled_gpus{_JOB}": "throttled",
        },
    ),
    Panel(
        "Missed",
        {
            f"perseus_job_missed_clocks{_JOB}": "clocks not reached",
            f"perseus_job_lost_boundaries{_JOB}": "boundaries",
            f"perseus_job_refused_reports{_JOB}": "reports refused",
        },
    ),
)

NODE = (
    Panel("Node", {f"perseus_node_info{_NODE}": ""}, kind="table"),
    Panel(
        "Driver and clockd",
        {f"perseus_node_driver_up{_NODE}": "driver", f"perseus_node_clockd_up{_NODE}": "clockd"},
        kind="stat",
    ),
    Panel("Leased", {f"perseus_node_gpu_leased{_NODE}": "GPU {{gpu}}"}),
    Panel("Clocks left locked", {f"perseus_node_gpu_clocks_left_locked{_NODE}": "GPU {{gpu}}"}),
    Panel("Throttled", {f"perseus_node_gpu_throttled{_NODE}": "GPU {{gpu}}, {{reason}}"}),
    Panel("Power limit below the default", {f"perseus_node_gpu_power_capped{_NODE}": "GPU {{gpu}}"}),
    Panel("GPUs that answer", {f"perseus_node_gpu_up{_NODE}": "GPU {{gpu}}"}),
    Panel(
        "Age of these figures",
        {'time() - node_textfile_mtime_seconds{instance="$instance",file=~".*perseus[.]prom"}': "age"},
        unit="s",
    ),
)


def panel_json(panel: Panel, index: int) -> dict[str, Any]:
    """A panel as Grafana stores it."""
    is_table = panel.kind == "table"
    return {
        "id": index + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": _DATA,
        "gridPos": {"x": WIDTH * (index % 2), "y": HEIGHT * (index // 2), "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _DATA,
                "expr": query,
                "legendFormat": legend,
                **({"format": "table", "instant": True} if is_table else {}),
            }
            for number, (query, legend) in enumerate(panel.queries.items())
        ],
    }


def variable(name: str, query: str) -> dict[str, Any]:
    """A choice at the top of a dashboard."""
    return {"name": name, "type": "query", "datasource": _DATA, "query": query, "refresh": 2, "sort": 1}


def dashboard(uid: str, title: str, panels: Sequence[Panel], *variables: dict[str, Any]) -> dict[str, Any]:
    """A dashboard as Grafana imports it."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": uid,
        "title": title,
        "tags": ["perseus-dist"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, *variables]},
        "panels": [panel_json(panel, index) for index, panel in enumerate(panels)],
    }


def files() -> dict[str, str]:
    """Text by file name."""
    job = variable("perseus_job", "label_values(perseus_job_info, perseus_job)")
    node = variable("instance", "label_values(perseus_node_info, instance)")
    made = {
        "fleet.json": dashboard("perseus-fleet", "perseus-dist: fleet", FLEET),
        "job.json": dashboard("perseus-job", "perseus-dist: job", JOB, job),
        "node.json": dashboard("perseus-node", "perseus-dist: node", NODE, node),
    }
    return {name: json.dumps(content, indent=1) + "\n" for name, content in made.items()}


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file would change")
    args = parser.parse_args()
    made = files()
    there = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    if not args.check:
        for name, text in made.items():
            (FOLDER / name).write_text(text)
    elif made != there:
        print(f"{FOLDER}: not what {Path(__file__).name} makes; run it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
