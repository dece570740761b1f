"""Other planners beside perseus-dist on one measured profile, as `perseus-dist compare` prints it, in markdown.

    python benchmarks/planners_table.py [--record]

GPT-3 175B on A100, 8 pp_ranks, 1F1B, 12 microbatches; every plan is realised on the measured times and energies.
``--record`` writes benchmarks/results/planners.json.
"""

import argparse
import json
import subprocess
import sys

from measuring import add_profile_arguments, print_table, record_result

COLUMNS = ["planner", "time [s]", "slowdown", "energy [J]", "saving"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_profile_arguments(parser)
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/results")
    args = parser.parse_args()
    command = [sys.executable, "-m", "perseus_dist", "compare", str(args.profile), "--schedule", "1f1b", "--pp", "8"]
    options = ["--microbatches", "12", "--blocking-power-w", str(args.blocking_power_w), "--json"]
    done = subprocess.run([*command, *options], check=True, stdout=subprocess.PIPE, text=True)
    rows = [
        [
            plan["name"],
            f"{plan['time_s']:.3f}",
            f"{plan['slowdown_percent']:z.1f} %",
            f"{plan['energy_j']:,.0f}",
            f"{plan['saving_percent']:z.1f} %",
        ]
        for plan in json.loads(done.stdout)["plans"]
    ]
    print_table(COLUMNS, rows)
    if args.record:
        record_result("planners", command="python benchmarks/planners_table.py --record", columns=COLUMNS, rows=rows)


if __name__ == "__main__":
    main()
