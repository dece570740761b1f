"""What Perseus takes on a GPU node with eight ranks: memory and processor time of its agents and of clockd.

    python benchmarks/node_footprint.py [--iterations 120] [--record]

A job of 4 stages and 2 pipelines trains on eight simulated A100s of one node: stand-in trainers, and the real agents,
clock daemon and planner, the latter as on a host of its own. Counted are agents and clockd, and whatever they have
started: proportional set size (what several processes share is split between them) and processor time, in baseline and
sweep, and under the plan.
"""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from measuring import conditions, print_table, record_result

from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.wall_run import SupervisedPlanner, run_wall

PP, DP, MICROBATCHES = 4, 2, 8
OURS = (b"perseus_dist.agent", b"clockd", b"perseus_dist.device.lease")
BARS = (250.0, 10.0)  # MB, % of a core
COLUMNS = ("8 ranks on a node", "processes", "bar", "while measuring", "under the plan")


class Stretch:
    """Memory and processor time of the node's processes during some phases."""

    def __init__(self, *phases: str) -> None:
        self.phases = phases
        self.pss_mb = 0.0
        self.num_processes = 0
        self._cpu_s: dict[int, list[float]] = {}
        self._times_s: list[float] = []

    def look(self) -> None:
        """Take a reading."""
        now_s, pss_mb, pids = time.monotonic(), 0.0, list(node_processes())
        for pid in pids:
            with suppress(OSError):
                pss_mb += pss_of(pid)
                self._cpu_s.setdefault(pid, []).append(cpu_of(pid))
        self._times_s.append(now_s)
        if pss_mb > self.pss_mb:
            self.pss_mb, self.num_processes = pss_mb, len(pids)

    @property
    def cpu_percent(self) -> float:
        """Of one core."""
        spent_s = sum(values[-1] - values[0] for values in self._cpu_s.values())
        return 100 * spent_s / (self._times_s[-1] - self._times_s[0])


def node_processes() -> Iterator[int]:
    """Agents, the lease daemon and what they have started, of this run."""
    mark = os.environ["FOOTPRINT_OF"].encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"FOOTPRINT_OF=" + mark not in (path / "environ").read_bytes().split(b"\0"):
                continue
            command = (path / "cmdline").read_bytes()
            if any(part in command for part in OURS):
                yield int(path.name)


def pss_of(pid: int) -> float:
    """[MB] of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def cpu_of(pid: int) -> float:
    """[s] of processor time, its own and the system's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run the job and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=120, metavar="N")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/node_footprint.json")
    args = parser.parse_args()
    os.environ["FOOTPRINT_OF"] = str(os.getpid())
    print(conditions())
    stretches = (Stretch("warming_up", "profiling"), Stretch("enforcing"))
    looked_s = 0.0

    def watch(status: pb.JobStatus, planner: SupervisedPlanner) -> None:  # noqa: ARG001
        nonlocal looked_s
        if time.monotonic() - looked_s > 2.0:
            looked_s = time.monotonic()
            for stretch in stretches:
                if status.phase in stretch.phases:
                    stretch.look()

    job = SimulatedJob(
        schedule=one_f_one_b(pp=PP, microbatches=MICROBATCHES),
        num_pipelines=DP,
        num_iterations=args.iterations,
        imbalance=0.1,
    )
    with TemporaryDirectory() as folder:
        outcome = run_wall(job, "a100", folder=Path(folder), watch=watch)
    measuring, planned = stretches
    if not measuring.num_processes or not planned.num_processes:
        raise SystemExit("node_footprint: no process of an agent was seen, so that nothing is measured")
    num = str(planned.num_processes)
    rows = [
        ("proportional set size", num, f"{BARS[0]:g} MB", f"{measuring.pss_mb:.0f} MB", f"{planned.pss_mb:.0f} MB"),
        (
            f"processor time, iterations of {outcome.enforced.time_s:.1f} s",
            num,
            f"{BARS[1]:g} % of a core",
            f"{measuring.cpu_percent:.1f} %",
            f"{planned.cpu_percent:.1f} %",
        ),
    ]
    print_table(COLUMNS, rows)
    if args.record:
        command = f"python benchmarks/node_footprint.py --iterations {args.iterations} --record"
        record_result("node_footprint", command=command, columns=COLUMNS, rows=rows)


if __name__ == "__main__":
    main()
