"""Jobs on two nodes without a planner that is named: rank 0's serves both. The nodes are network namespaces."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from deepspeed_loops import deepspeed_run_in
from deepspeed_loops import saved_profile as deepspeed_profile
from megatron_loops import OLDER, run_in, saved_profile
from pipelining_harness_client import Harness
from pipelining_loops import pipelining_run_in, promised
from two_nodes import Node, refusal, two_nodes
from waiting import wait_until

from perseus_dist.report.run_report import build_report
from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.megatron_run import MegatronRun
from perseus_dist.simulation.frameworks.training_run import TrainingRun

pytestmark = pytest.mark.skipif(bool(refusal()), reason=refusal() or "possible")

PORT, SHARED_PORT = 29_500, 50_152


@contextmanager
def started(
    nodes: tuple[Node, Node], run: TrainingRun, commands: Sequence[Sequence[str]]
) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """A launcher on each node, as its user would type it there."""
    launchers = []
    try:
        for number, (node, command) in enumerate(zip(nodes, commands, strict=True)):
            environment = run.environment(node.machine) | {"GLOO_SOCKET_IFNAME": node.interface}
            with (run.folder / f"node-{number}.log").open("wb") as log:
                launchers.append(
                    subprocess.Popen(
                        node.inside(command),
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        process_group=0,
                    )
                )
        yield launchers
    finally:
        for launcher in launchers:
            kill_node(launcher)


@contextmanager
def torchrun_on(nodes: tuple[Node, Node], run: TrainingRun) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """``torchrun`` on each node."""
    commands = [run.command(with_perseus=True) for _ in nodes]
    for number, command in enumerate(commands):
        ranks = command.index("--nproc_per_node")
        command[ranks : ranks + 4] = [
            *("--nnodes", "2", "--node_rank", str(number), "--nproc_per_node", "1"),
            *("--master_addr", nodes[0].address, "--master_port", str(PORT)),
        ]
    with started(nodes, run, commands) as launchers:
        yield launchers


@contextmanager
def deepspeed_on(nodes: tuple[Node, Node], run: DeepSpeedRun) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """``deepspeed --no_ssh`` on each node, as under a cluster's own launcher."""
    hosts = run.folder / "hostfile"
    hosts.write_text("".join(f"{node.address} slots=1\n" for node in nodes))
    commands = [run.command(with_perseus=True) for _ in nodes]
    for number, command in enumerate(commands):
        ranks = command.index("--num_gpus")
        command[ranks : ranks + 4] = [
            *("--hostfile", str(hosts), "--no_ssh", "--node_rank", str(number)),
            *("--master_addr", nodes[0].address, "--master_port", str(PORT)),
        ]
    with started(nodes, run, commands) as launchers:
        yield launchers


def kill_node(launcher: "subprocess.Popen[bytes]") -> None:
    """Every process of a launcher's group, at once, as when the node's power fails."""
    with suppress(ProcessLookupError):
        os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()


def prepared(folder: Path, *, num_steps: int) -> MegatronRun:
    run = run_in(folder, "PP2 V2, overlapped", num_steps=num_steps, version=OLDER)
    return replace(run, perseus_options=saved_profile(run))


@pytest.mark.soak
def test_rank_0s_planner_serves_both_nodes_of_megatron(tmp_path: Path) -> None:
    run = prepared(tmp_path, num_steps=60)
    with two_nodes() as nodes, torchrun_on(nodes, run) as launchers:
        check_served(nodes, launchers)
    check_planned(tmp_path)


@pytest.mark.soak
def test_rank_0s_planner_serves_both_nodes_of_deepspeed(tmp_path: Path) -> None:
    run = deepspeed_run_in(tmp_path, num_steps=40)
    run = replace(run, perseus_options=deepspeed_profile(run))
    with two_nodes() as nodes, deepspeed_on(nodes, run) as launchers:
        check_served(nodes, launchers)
    check_planned(tmp_path)


@pytest.mark.soak
def test_rank_0s_planner_serves_both_nodes_of_torch_pipelining(tmp_path: Path) -> None:
    with Harness().running() as harness:
        schedule = promised(harness, "1F1B")
    run = pipelining_run_in(tmp_path, "1F1B", schedule, num_steps=40)
    with two_nodes() as nodes, torchrun_on(nodes, run) as launchers:
        check_served(nodes, launchers)
    check_planned(tmp_path)


def check_served(nodes: tuple[Node, Node], launchers: Sequence["subprocess.Popen[bytes]"]) -> None:
    wait_until(lambda: all(node.are_locked() for node in nodes))
    assert [launcher.wait(300) for launcher in launchers] == [0, 0]
    assert all(node.are_unlocked() for node in nodes)


def check_planned(folder: Path) -> None:
    report = build_report(folder)
    assert report.is_planned, report.job.reason
    assert report.predicted_saving_percent is not None
    assert report.predicted_saving_percent > 3


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.stress), pytest.param(1, marks=pytest.mark.soak)])
def test_a_node_that_fails_leaves_no_clock_locked(tmp_path: Path, number: int) -> None:
    run = prepared(tmp_path, num_steps=5000)
    with two_nodes() as nodes, torchrun_on(nodes, run) as launchers:
        wait_until(lambda: all(node.are_locked() for node in nodes))
        kill_node(launchers[number])
        wait_until(nodes[1 - number].are_unlocked)
        wait_until(lambda: all(node.are_unlocked() for node in nodes))


@pytest.mark.stress
def test_a_firewall_in_between_is_named_and_training_goes_on(tmp_path: Path) -> None:
    run = prepared(tmp_path, num_steps=50)
    with two_nodes() as nodes:
        share = ("--perseus-share", f"{nodes[0].address}:{SHARED_PORT}")
        nodes[0].drop_answers(SHARED_PORT)
        with torchrun_on(nodes, replace(run, perseus_options=(*run.perseus_options, *share))) as launchers:
            assert [launcher.wait(300) for launcher in launchers] == [0, 0]
        assert all(gpu.state().num_sets == 0 for node in nodes for gpu in node.machine.gpus)
    said = [line for line in (tmp_path / "node-1.log").read_text().splitlines() if f":{SHARED_PORT}" in line]
    assert len(said) == 1, said
    assert "training goes on" in said[0]
