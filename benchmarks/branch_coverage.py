"""How many branches of the package the unit tests take, in any checkout: of the files in its ``perseus_dist``.

    python benchmarks/branch_coverage.py [CHECKOUT] [--tests tests/unit] [--report FOLDER] [--record]

Runs the checkout's default tier of the tests named in two processes, half of the files in each, and prints what
coverage.py counted. A branch is a jump from a line to one of several that may follow it. What is generated is left out,
and what runs in processes that tests start. ``--report`` keeps ``coverage.json``, which has the lines and branches of
each file; ``--record`` puts a row into the table of the documentation.

The checkout is run by this environment's Python; its native parts, ``perseus_dist/_solver*.so`` and
``perseus_dist/simulator/lib``, are to be built in it, unless it is the one that is installed here.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measuring import RESULTS, print_table, record_result

ROOT = Path(__file__).resolve().parents[1]
RESULT = RESULTS / "branch_coverage.json"
COLUMNS = ("date", "commit", "tests", "passed", "files", "lines", "lines run [%]", "branches", "branches taken [%]")
_SOME_FAILED = 1
_PROCESSES = 2
SETTINGS = """\
[run]
branch = true
parallel = true
data_file = {folder}/coverage
source = {checkout}/perseus_dist
omit = {checkout}/perseus_dist/rpc/v1/*
"""


def measure(checkout: Path, tests: list[str], folder: Path) -> tuple[int, dict[str, Any]]:
    """Run the tests under coverage.py.

    Args:
        checkout: Whose package and tests these are.
        tests: Files and folders in it.
        folder: For what coverage.py writes.

    Returns:
        How many tests passed, and the totals of coverage.py's JSON report.
    """
    settings = folder / "coveragerc"
    settings.write_text(SETTINGS.format(folder=folder, checkout=checkout))
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    python = sys.executable if checkout == ROOT else make_environment(folder / "environment")
    command = [python, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest"]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist"]
    if '"stress: ' in (checkout / "pyproject.toml").read_text():  # since there are tiers
        command += ["-m", "not stress and not soak"]
    files = sorted(
        file
        for name in tests
        for file in ([checkout / name] if name.endswith(".py") else (checkout / name).rglob("test_*.py"))
    )
    runs = [
        subprocess.Popen(
            [*command, *map(str, files[first::_PROCESSES])],
            cwd=checkout,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in range(_PROCESSES)
    ]
    with ThreadPoolExecutor() as readers:
        outputs = list(readers.map(lambda run: run.communicate()[0], runs))
    for run, output in zip(runs, outputs, strict=True):
        print(output[-4000:], file=sys.stderr)
        if run.returncode not in (0, _SOME_FAILED):
            raise SystemExit(f"pytest ended with {run.returncode}; what it said last stands above")
    report = folder / "coverage.json"
    for words in (["combine", "-q"], ["json", "-q", "-o", str(report)]):
        command = [python, "-m", "coverage", words[0], f"--rcfile={settings}", *words[1:]]
        subprocess.run(command, cwd=checkout, env=environment, check=True)
    counted: dict[str, Any] = json.loads(report.read_text())
    passed = sum(int(output.splitlines()[-1].split(" passed")[0].split()[-1]) for output in outputs)
    return passed, {"files": len(counted["files"]), **counted["totals"]}


def make_environment(folder: Path) -> str:
    """One that has this environment's packages but not the package that is installed here; its Python."""
    venv.create(folder, with_pip=False)
    (site_packages,) = folder.glob("lib/python3*/site-packages")
    (site_packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")  # whose own .pth are not read
    return str(folder / "bin" / "python")


def main() -> None:
    """Measure one checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--tests", nargs="+", default=["tests/unit"])
    parser.add_argument(
        "--report", type=Path, help="folder to keep coverage.json in, which names the lines of each file"
    )
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    checkout = args.checkout.resolve()
    show = ["git", "-C", str(checkout), "show", "--no-patch", "--format=%cs %h", "HEAD"]
    date, commit = subprocess.run(show, capture_output=True, text=True, check=True).stdout.split()
    with tempfile.TemporaryDirectory() as folder:
        passed, totals = measure(checkout, args.tests, Path(folder))
        if args.report is not None:
            shutil.copy(Path(folder) / "coverage.json", args.report)
    print(json.dumps(totals))
    row = [
        date,
        commit,
        " ".join(f"`{name}`" for name in args.tests),
        f"{passed:,}",
        f"{totals['files']:,}",
        f"{totals['num_statements']:,}",
        f"{100 * totals['covered_lines'] / totals['num_statements']:.1f}",
        f"{totals['num_branches']:,}",
        f"{100 * totals['covered_branches'] / totals['num_branches']:.1f}",
    ]
    print_table(COLUMNS, [row])
    if args.record:
        command = "python benchmarks/branch_coverage.py CHECKOUT --record"
        before = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
        rows = sorted([*(one for one in before if one[:3] != row[:3]), row])
        record_result("branch_coverage", command=command, columns=COLUMNS, rows=rows)


if __name__ == "__main__":
    main()
