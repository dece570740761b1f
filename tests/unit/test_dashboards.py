"""Dashboards, alerts and pages name metrics that there are, and are what their scripts make."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perseus_dist.device import node_metrics
from perseus_dist.planner.metrics import catalogue
from perseus_dist.planner.metrics.catalogue import Kind

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = ("_bucket", "_sum", "_count")
KNOWN = (
    {family.shown_name for family in catalogue.ALL}
    | {f"{family.name}{suffix}" for family in catalogue.ALL if family.kind is Kind.HISTOGRAM for suffix in SUFFIXES}
    | {family.name for family in node_metrics.ALL}
)
TEXTS = (*sorted((ROOT / "launch/grafana/dashboards").glob("*.json")), ROOT / "launch/prometheus/perseus.rules.yml")


@pytest.mark.parametrize("script", ["dashboards.py", "metrics_table.py"])
def test_nothing_is_stale(script: str) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs/tools" / script), "--check"], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_queries_name_metrics_that_there_are(path: Path) -> None:
    text = path.read_text()
    queries = re.findall(r"^ +expr: (.+)$", text, re.MULTILINE)
    if path.suffix == ".json":
        queries = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    assert queries
    named = {name for query in queries for name in re.findall(r"\bperseus_[a-z_]+", query)} - {"perseus_job"}
    assert named - KNOWN == set()


def test_every_alert_has_its_remedy_on_the_page() -> None:
    alerts = re.findall(r"alert: (\w+)", (ROOT / "launch/prometheus/perseus.rules.yml").read_text())
    page = (ROOT / "docs/metrics.md").read_text()
    assert [alert for alert in alerts if f"| {alert} |" not in page] == []
