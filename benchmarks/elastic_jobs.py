"""Jobs that torchrun restarts, on two nodes made of network namespaces: iterations until each attempt is under a plan.

    python benchmarks/elastic_jobs.py [--record] [--only deepspeed]

Real Megatron-LM and DeepSpeed on simulated A100s, two stages and two pipelines, ``torchrun --nnodes 1:2``, one launch
line for all starts and a cache that both nodes share. A trainer dies; a node is lost, and torchrun goes on with the
other, once plans have been made ahead, or two minutes have passed without idle processors; the node comes back; the
job is started anew with half as many microbatches more. Bars: under the plan within 3 iterations of attaching, and
within 5 of the larger batch.
Iterations are counted from where training begins in each attempt, and from where the agents of all ranks are there,
which takes them some seconds. Needs root, for the namespaces. ``--record`` writes benchmarks/results/elastic_jobs.json.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measuring import conditions, print_table, record_result

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from elastic_nodes import deepspeed, elastic_job, history, megatron

from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.megatron_run import MegatronRun

JOBS: dict[str, Callable[[Path], MegatronRun | DeepSpeedRun]] = {"Megatron-LM": megatron, "DeepSpeed": deepspeed}
COLUMNS = (
    *(
        "framework",
        "what happens",
        "PP x DP",
        "clocks measured anew",
        "plans made ahead",
        "all ranks attached in iteration",
    ),
    *("under the plan in iteration", "iterations between"),
)


def main() -> int:
    """Print the table; 1 where an attempt after the first was swept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[name.lower() for name in JOBS], help="one framework")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/elastic_jobs.json")
    args = parser.parse_args()
    print(conditions(), flush=True)
    rows, is_met = [], True
    for name, make in JOBS.items():
        if args.only not in (None, name.lower()):
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # agents may still write
            os.environ["XDG_STATE_HOME"] = folder
            run_folder = Path(folder) / "run"
            run_folder.mkdir()
            with elastic_job(make(run_folder)) as job:
                attempts = history(job)
        for number, (what, attempt) in enumerate(attempts.items()):
            is_met &= attempt.is_swept == (number == 0)
            rows.append(
                (
                    name,
                    what,
                    f"2 x {attempt.dp_size}",
                    "yes" if attempt.is_swept else "no",
                    str(attempt.num_ahead) if number == 2 else "",
                    str(attempt.first_seen),
                    str(attempt.first_planned),
                    str(attempt.first_planned - attempt.first_seen),
                )
            )
            print(*rows[-1], file=sys.stderr, flush=True)
    print_table(COLUMNS, rows)
    if args.record:
        only = "" if args.only is None else f"--only {args.only} "
        command = f"python benchmarks/elastic_jobs.py {only}--record"
        record_result("elastic_jobs", command=command, columns=COLUMNS, rows=rows)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
