"""Nodes and their GPUs, as far as attached ranks say: who sets clocks, what was refused, limits and slowdowns."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from perseus_dist.messages.finding import Finding, Level
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.membership import RankState
from perseus_dist.planner.runtime.nodes import ConnectedNode
from perseus_dist.straggler.evidence.gpu_evidence import (
    REASON_HW_SLOWDOWN,
    REASON_HW_THERMAL,
    REASON_POWER_BRAKE,
    REASON_POWER_CAP,
    REASON_SW_THERMAL,
)

MAX_GPUS = 1024
MAX_FINDINGS = 256
MAX_LEFT = 8
MAX_IDLE = 1024
UNKNOWN_HOST = "not named"
_REASONS = (
    (REASON_HW_THERMAL | REASON_SW_THERMAL, "slowed by heat"),
    (REASON_POWER_BRAKE, "slowed by the power supply"),
    (REASON_HW_SLOWDOWN, "slowed by the hardware"),
    (REASON_POWER_CAP, "at its power limit"),
)


def nodes_document(jobs: Iterable[Job], connected: Iterable[ConnectedNode]) -> dict[str, Any]:
    """Nodes by name, the GPUs of each by job and rank, for the template; at most ``MAX_GPUS`` of them.

    Nodes that all ranks have left stand with the jobs whose ranks were there, and those that have had none are there
    while their relays are connected, ``MAX_IDLE`` of them at most. The planner knows of no other node: clockd talks to
    its node alone.
    """
    gpus: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    found: defaultdict[str, set[Finding]] = defaultdict(set)
    left: defaultdict[str, set[str]] = defaultdict(set)
    relays: set[str] = set()
    not_shown: set[str] = set()
    shown = left_out = 0
    for node in connected:
        relays.add(node.host)
        found[node.host].update(node.findings)
    for job in jobs:
        for rank, state in sorted(job.members.ranks.items()):
            if state.stream is None:
                if state.host:
                    left[state.host].add(job.job_id)
                continue
            host = state.host or UNKNOWN_HOST
            found[host].update(state.findings)
            if shown == MAX_GPUS:
                left_out += 1
                not_shown.add(host)
                continue
            shown += 1
            gpus[host].append(_gpu(job.job_id, rank, state))
    idle = sorted(relays - {*gpus, *left, *not_shown})
    hosts = {*gpus, *left, *sorted(not_shown)[:MAX_IDLE], *idle[:MAX_IDLE]}
    nodes = [
        {
            "host": host,
            "gpus": of_host,
            "num_leased": sum(gpu["is_leased"] for gpu in of_host),
            "num_findings": len(found[host]),
            "findings": list(dict.fromkeys(gpu["refusal"] for gpu in of_host if gpu["refusal"])),
            "has_ranks": bool(of_host) or host in not_shown,
            "left": () if of_host else sorted(left[host])[:MAX_LEFT],
            "has_relay": host in relays,
        }
        for host in sorted(hosts)
        for of_host in (gpus.get(host, []),)
    ]
    return {"nodes": nodes, "num_left_out": left_out, "num_idle_left_out": len(idle[MAX_IDLE:])}


def node_document(jobs: Iterable[Job], connected: Iterable[ConnectedNode], host: str) -> dict[str, Any]:
    """One node: its GPUs by job and rank, and what its relay finds wrong and agents found, each finding once."""
    gpus: list[dict[str, Any]] = []
    findings: dict[Finding, list[str]] = {}
    left_out = 0
    relays = [node for node in connected if node.host == host]
    for node in relays:
        for finding in node.findings:
            findings[finding] = ["the node relay"]
    for job in jobs:
        for rank, state in sorted(job.members.ranks.items()):
            if state.stream is None or (state.host or UNKNOWN_HOST) != host:
                continue
            if len(gpus) == MAX_GPUS:
                left_out += 1
                continue
            gpus.append(_gpu(job.job_id, rank, state))
            for finding in state.findings:
                findings.setdefault(finding, []).append(f"{job.job_id} rank {rank}")
    ordered = sorted(findings.items(), key=lambda found: (found[0].level is not Level.FAIL, found[0].subject))
    return {
        "host": host,
        "gpus": gpus,
        "num_left_out": left_out,
        "findings": ordered[:MAX_FINDINGS],
        "has_relay": bool(relays),
    }


def _gpu(job_id: str, rank: int, state: RankState) -> dict[str, Any]:
    gpu, reading, sample = state.gpu, state.gpu_reading, state.gpu_sample
    return {
        "job_id": job_id,
        "rank": rank,
        "name": gpu.name,
        "uuid": gpu.uuid,
        "driver": gpu.driver_version,
        "control": state.control,
        "is_leased": state.can_set_clocks,
        "refusal": "" if state.can_set_clocks else gpu.refusal or "its clocks can be observed only",
        "clock_mhz": reading.clock_mhz,
        "power_w": sample.power_w,
        "temperature_c": sample.temperature_c,
        "limits": "; ".join(_limits(state)),
        "trouble": state.trouble,
    }


def _limits(state: RankState) -> list[str]:
    gpu, found = state.gpu, []
    if 0 < gpu.power_limit_w < gpu.default_power_limit_w:
        found.append(f"power limit {gpu.power_limit_w:.0f} W of {gpu.default_power_limit_w:.0f} W")
    if gpu.power_profiles not in ("", "none"):
        found.append(f"power profile {gpu.power_profiles}")
    reasons = state.gpu_reading.event_reasons
    return [*found, *(words for mask, words in _REASONS if reasons & mask)]
