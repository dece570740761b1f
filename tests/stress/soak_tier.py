"""The soak tier: every campaign at its full count, one after the other, and a record of what came of each.

A campaign's output goes to ``build/soak/NAME.log``. Its outcome, the commit and the date go to
``benchmarks/results/soak_tier.json``, where campaigns that are not run keep their last outcome. All together
take most of a day on two cores; ``--only`` runs some of them.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from measuring import RESULTS, commit, record_result  # noqa: E402

LOGS = ROOT / "build" / "soak"
COLUMNS = ("campaign", "command", "outcome", "last line", "time [min]", "date", "commit")

CAMPAIGNS = {
    "histories": "python benchmarks/chaos_campaign.py --seeds 0-9999 --out build/soak/histories.json --record",
    "onsets": "python benchmarks/onset_matrix.py --folder build/soak/onsets --out build/soak/onsets.json --record",
    "long runs": "env PERSEUS_NUM_KILLS=200 pytest -m 'soak or stress' tests/integration tests/oracles tests/unit",
    "operator's first hour": "pytest -m 'stress or soak' tests/integration/test_cluster_page.py",
    "kills": "unshare --mount python tests/stress/kill_matrix.py --jobs 2",
    "planner kills": "python tests/stress/planner_kills.py --kills 500",
    "replica kills": "python tests/stress/replica_kills.py --strikes 200",
    "replica histories": "python tests/stress/replica_histories.py --seeds 0-1999",
    "inputs": "python tests/stress/malformed_input.py --count 10000",
    "clockd frames": "env PERSEUS_NUM_FRAMES=100000 pytest tests/integration/test_clockd_fuzz.py",
    "planner messages": "env PERSEUS_NUM_RPCS=100000 pytest tests/integration/test_planner_fuzz.py",
    "command lines": "env PERSEUS_NUM_EXAMPLES=455 pytest tests/integration/test_cli_fuzz.py",
    "properties": "pytest -n 2 --hypothesis-profile drawn tests/unit",
    "launchers": "env PERSEUS_TEST_DEEPSPEED_OLD=build/deepspeed-0.14.5 "
    "PERSEUS_NUM_COMMAND_LINES=10000 pytest tests/integration/test_pristine_parsers.py",
    "versions": "sh -c './launch/versions && python benchmarks/version_matrix.py --record'",
    "interruptions": "env PERSEUS_NUM_MOMENTS=100 pytest tests/integration/test_simulate_interrupted.py",
    "two hours": "python tests/stress/soak.py --hours 2 --agents 200 --log build/soak/two-hours.jsonl",
}


def main() -> int:
    """Read the command line; 1 if a campaign failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=CAMPAIGNS, help="a campaign to run; again for more")
    args = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    return max([run(name) for name in args.only or CAMPAIGNS])


def run(name: str) -> int:
    """Run one campaign and record its outcome; 1 if it failed."""
    log = LOGS / f"{name.replace(' ', '-')}.log"
    print(f"{name}: {CAMPAIGNS[name]}", flush=True)
    began_s = time.monotonic()
    with log.open("w") as out:
        done = subprocess.run(
            shlex.split(CAMPAIGNS[name]),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    lines = log.read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    outcome = "held" if done.returncode == 0 else f"failed ({done.returncode})"
    print(f"  {outcome}: {last} ({log.relative_to(ROOT)})", flush=True)
    _record(name, [outcome, last, f"{(time.monotonic() - began_s) / 60:.0f}"])
    return int(done.returncode != 0)


def _record(name: str, found: list[str]) -> None:
    path = RESULTS / "soak_tier.json"
    rows = {row[0]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}
    rows[name] = [name, CAMPAIGNS[name], *found, str(date.today()), commit()]
    ordered = [rows[name] for name in CAMPAIGNS if name in rows]
    record_result("soak_tier", command="./launch/test --soak", columns=COLUMNS, rows=ordered)


if __name__ == "__main__":
    sys.exit(main())
