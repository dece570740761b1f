"""Kills every part of a job and of its node, in every way, and looks whether a clock stays locked.

    unshare --mount python tests/stress/kill_matrix.py [--jobs N] [--only 'agent * by cgroup.kill *'] [--json]

Needs root: control groups of version 2, which it mounts in that mount namespace if need be, and PID namespaces. The
exit code is 1 if a clock stayed locked.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from kill_cases import Case, Outcome, Part, Result, Way, all_cases, table
from kill_node import Node, NodeError, kill, wait_for

LEASE_S = 2.0
GRACE_S = 1.0
_LATE_S = 30.0
_LOOP_S = 3.0
_LOOP_STEP_S = 0.25
_TERM_S = 0.5
_NUM_ATTEMPTS = 2  # to get a job going; what is judged is never tried again


def main() -> int:
    """Run the cases, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time (default: 1)")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="cases to run; again for more")
    parser.add_argument("--json", action="store_true", help="print a JSON object a case instead of the table")
    args = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root, for control groups and PID namespaces")
    patterns = args.only or ["*"]
    cases = [case for case in all_cases() if any(fnmatchcase(str(case), pattern) for pattern in patterns)]
    with groups_folder() as groups, ThreadPoolExecutor(args.jobs) as pool:
        outcomes = []
        for outcome in pool.map(lambda case: run(case, groups), cases):
            outcomes.append(outcome)
            said = f"{outcome.case}: {outcome.result} after {outcome.seconds:.2f} s {outcome.detail}".rstrip()
            line = {"case": str(outcome.case), "result": outcome.result, "seconds": outcome.seconds}
            print(json.dumps({**line, "detail": outcome.detail}) if args.json else said, flush=True)
    if not args.json:
        heads, *rows = table(outcomes)
        for cells in (heads, ["---"] * len(heads), *rows):
            print(f"| {' | '.join(cells)} |")
    bad = [outcome for outcome in outcomes if outcome.result in (Result.LOCKED, Result.BROKEN)]
    worst_s = max((outcome.seconds for outcome in outcomes if outcome not in bad), default=0.0)
    print(
        f"{len(outcomes)} cases, {len(bad)} clocks left locked; the others after {worst_s:.2f} s at most",
        file=sys.stderr,
    )
    return 1 if bad else 0


@contextmanager
def groups_folder() -> Iterator[Path | None]:
    """The top of the unified hierarchy of control groups, mounted if need be; None where it cannot be had."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[fields.index("-") + 1] == "cgroup2" and os.access(fields[4], os.W_OK) and fields[3] == "/":
            yield Path(fields[4])
            return
    folder = tempfile.mkdtemp(prefix="perseus-groups-")
    is_mounted = subprocess.run(["mount", "-t", "cgroup2", "none", folder], check=False).returncode == 0
    try:
        yield Path(folder) if is_mounted else None
    finally:
        if is_mounted:
            subprocess.run(["umount", folder], check=False)
        Path(folder).rmdir()


def run(case: Case, groups: Path | None) -> Outcome:
    """Start a job, kill what the case says, and judge."""
    if case.way is Way.GROUP and groups is None:
        return Outcome(case=case, result=Result.BROKEN, seconds=0.0, detail="no control groups of version 2 here")
    trouble = ""
    for _ in range(_NUM_ATTEMPTS):
        folder = Path(tempfile.mkdtemp(prefix="perseus-kill-"))
        try:
            with Node(case, folder, groups) as node:
                outcome = _kill_and_judge(case, node)
        except NodeError as error:
            trouble = f"{error}; logs are in {folder}"
            continue
        if outcome.result is Result.LOCKED:
            return replace(outcome, detail=f"{outcome.detail}; logs are in {folder}")
        shutil.rmtree(folder)
        return outcome
    return Outcome(case=case, result=Result.BROKEN, seconds=0.0, detail=trouble)


def _kill_and_judge(case: Case, node: Node) -> Outcome:
    num_resets = node.gpu.state().num_resets
    kill_by = {Way.GROUP: _by_group, Way.NAMESPACE: _by_namespace, Way.LOOP: _in_a_loop, Way.TERM: _after_term}
    kill_by[case.way](case, node)
    until_s = time.monotonic() + LEASE_S + GRACE_S

    def is_restored() -> bool:
        """Unlocked at this moment, or since the kill and then locked again for the job that goes on."""
        state = node.gpu.state()
        return state.is_unlocked or (case.leaves_job and (state.num_resets > num_resets or not case.ends_lease))

    outcome = Outcome(case=case, result=Result.UNLOCKED, seconds=0.0)
    try:
        outcome = replace(outcome, seconds=wait_for(is_restored, LEASE_S + GRACE_S, "the restore"))
    except NodeError:
        return _sweep(outcome, node) if case.leaves_nothing else _too_late(outcome, is_restored)
    if not case.leaves_job:
        return outcome
    time.sleep(max(0.0, until_s - time.monotonic()))
    if not (node.gpu.state().is_unlocked or (node.is_leased and node.pids(Part.AGENT))):
        return replace(outcome, result=Result.LOCKED, seconds=LEASE_S + GRACE_S, detail="beside a job without a lease")
    kill(node.trainer_pid, signal.SIGTERM)
    try:
        after_s = wait_for(lambda: node.gpu.state().is_unlocked, LEASE_S + GRACE_S, "the restore at the end")
    except NodeError:
        return replace(outcome, result=Result.LOCKED, seconds=LEASE_S + GRACE_S, detail="after the trainer's end")
    return replace(outcome, result=Result.HELD, seconds=max(outcome.seconds, after_s))


def _too_late(outcome: Outcome, is_restored: Callable[[], bool]) -> Outcome:
    """Locked for longer than is allowed; for ever, or on a busy machine for a while more."""
    try:
        late_s = wait_for(is_restored, _LATE_S, "a late restore")
    except NodeError:
        return replace(outcome, result=Result.LOCKED, seconds=LEASE_S + GRACE_S + _LATE_S, detail="not restored")
    return replace(outcome, result=Result.LOCKED, seconds=LEASE_S + GRACE_S + late_s, detail="restored too late")


def _sweep(outcome: Outcome, node: Node) -> Outcome:
    """Nothing was left, and a container's lease files are lost with it: what a node does between jobs."""
    began_s = time.monotonic()
    if outcome.case.way is Way.NAMESPACE:
        shutil.rmtree(node.lease_folder)
    command = [sys.executable, "-m", "perseus_dist", "release", "--all", "--if-unleased"]
    subprocess.run(command, env=node.environ, check=False, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: node.gpu.state().is_unlocked, GRACE_S, "the sweep")
    except NodeError:
        return replace(outcome, result=Result.LOCKED, detail="also after the sweep")
    return replace(outcome, result=Result.SWEPT, seconds=time.monotonic() - began_s)


def _by_group(case: Case, node: Node) -> None:
    """The job's own group where trainer and agent die: with all that has not left it; else a group of the victims."""
    whole_job = {Part.TRAINER, Part.AGENT} <= case.killed
    group = node.job_group if whole_job else node.make_group("victims")
    assert group is not None
    for pid in _pids(case, node):
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))
    (group / "cgroup.kill").write_text("1")


def _by_namespace(case: Case, node: Node) -> None:
    """The first process of each; the trainer is that of the job's container."""
    for part in (Part.CLOCKD, Part.PLANNER, Part.TRAINER):
        for pid in node.pids(part) if part in case.killed else ():
            kill(pid)


def _in_a_loop(case: Case, node: Node) -> None:
    until_s = time.monotonic() + _LOOP_S
    while time.monotonic() < until_s:
        for pid in _pids(case, node):
            kill(pid)
        time.sleep(_LOOP_STEP_S)


def _after_term(case: Case, node: Node) -> None:
    pids = _pids(case, node)
    for pid in pids:
        kill(pid, signal.SIGTERM)
    time.sleep(_TERM_S)
    for pid in pids:
        kill(pid)


def _pids(case: Case, node: Node) -> list[int]:
    return [pid for part in Part if part in case.killed for pid in node.pids(part)]


if __name__ == "__main__":
    sys.exit(main())
