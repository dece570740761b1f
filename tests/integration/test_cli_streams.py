"""The command line where a terminal, a disk or the locale does not play along: one line, and exit code 2."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROFILE = ROOT / "examples" / "profiles" / "gpu_model_pp4.csv"
SCHEDULE = "--schedule 1f1b --pp 4 --microbatches 8"
PLAN = f"plan {shlex.quote(str(PROFILE))} {SCHEDULE} --blocking-power-w 80"
UNWRITTEN = "perseus-dist: standard output cannot be written ({}); give it a file, a pipe or /dev/null\n"
INTERRUPTED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
from perseus_dist.cli import main
sys.exit(main(sys.argv[2:]))
"""

MAIN = "import sys; from perseus_dist.cli import main; sys.exit(main())"


def perseus_dist(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run by a shell, which closes and redirects."""
    return subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m perseus_dist {line}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        *((command, "") for command in (f"{PLAN} --json", f"schedule {SCHEDULE}", "--help")),
        *((command, "1") for command in (PLAN, "plan --help")),
        *(pytest.param(command, "", marks=pytest.mark.stress) for command in (PLAN, "plan --help")),
        pytest.param(f"{PLAN} --json", "1", marks=pytest.mark.stress),
        *(pytest.param(command, "1", marks=pytest.mark.stress) for command in (f"schedule {SCHEDULE}", "--help")),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_in_a_line(command: str, unbuffered: str) -> None:
    for redirection, why in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
        done = perseus_dist(f"{command} {redirection}", PYTHONUNBUFFERED=unbuffered)
        assert (done.returncode, done.stderr) == (2, UNWRITTEN.format(why))


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.stress)])
def test_an_error_stream_that_cannot_be_written_changes_nothing(unbuffered: str) -> None:
    usual = perseus_dist(f"schedule {SCHEDULE}")
    assert (usual.returncode, usual.stderr) == (0, "")
    for redirection in ("2>&-", "2>/dev/full", "<&- 2>&-"):
        done = perseus_dist(f"schedule {SCHEDULE} {redirection}", PYTHONUNBUFFERED=unbuffered)
        assert (done.returncode, done.stdout) == (0, usual.stdout)
        planned = perseus_dist(f"{PLAN} --json {redirection}", PYTHONUNBUFFERED=unbuffered)
        assert planned.returncode == 0
        assert planned.stdout.startswith("{")
        refused = perseus_dist(f"schedule --pp 4 {redirection}", PYTHONUNBUFFERED=unbuffered)
        assert (refused.returncode, refused.stdout) == (2, "")


@pytest.mark.parametrize("redirection", [">&- 2>&-", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"])
def test_without_any_stream_the_exit_code_tells(redirection: str) -> None:
    assert perseus_dist(f"schedule {SCHEDULE} {redirection}").returncode == 2


def test_a_reader_that_leaves_is_no_failure() -> None:
    done = perseus_dist(f"{PLAN} --json | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "module", ["argparse", "perseus_dist.cli.parser", "perseus_dist.cli.planning.plan", "numpy.linalg", "rich.table"]
)
def test_ctrl_c_while_modules_load_is_an_interrupt(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, *shlex.split(PLAN)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "perseus-dist: interrupted\n")


@pytest.mark.stress
def test_names_that_the_locale_cannot_spell_are_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "dir ä ü 日本"
    folder.mkdir()
    profile, out = folder / "prö file.csv", folder / "plans ö"
    profile.write_bytes(PROFILE.read_bytes())
    ascii_locale = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    line = f"{shlex.quote(str(profile))} {SCHEDULE} --blocking-power-w 80 --out {shlex.quote(str(out))}"
    planned = perseus_dist(f"plan {line}", **ascii_locale)
    assert (planned.returncode, planned.stderr) == (0, "")
    picture = (out / "frontier.svg").read_text()
    usual = perseus_dist(f"plan {line}", PYTHONUTF8="1")
    assert (usual.returncode, usual.stdout.splitlines()[0]) == (0, planned.stdout.splitlines()[0])
    assert (out / "frontier.svg").read_text() == picture
    drawn = folder / "curves ü.svg"
    shown = f"profile show {shlex.quote(str(profile))} --blocking-power-w 80 --out {shlex.quote(str(drawn))}"
    assert perseus_dist(shown, **ascii_locale).returncode == 0
    assert drawn.exists()


@pytest.mark.parametrize(
    "encoding", ["ascii:strict", *(pytest.param(name, marks=pytest.mark.stress) for name in ("ascii", "latin-1"))]
)
def test_what_an_output_cannot_spell_is_written_as_an_escape(tmp_path: Path, encoding: str) -> None:
    """All results had been written when the line that names them ended in a traceback."""
    profile = tmp_path / "ł 1.csv"
    profile.write_bytes(PROFILE.read_bytes())
    plan = f"plan {shlex.quote(str(profile))} {SCHEDULE} --blocking-power-w 80 --out {shlex.quote(str(tmp_path / 'ł'))}"
    done = perseus_dist(f"{plan} | cat", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "ł" / "plan.json").exists()
    assert r"\u0142 1.csv: 1f1b" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        f"{PLAN} --out x",
        "plan x.csv --schedule 1f1b --pp 1 --microbatches 1 --blocking-power-w 80",
        "lookup x.npz --fastest --out x",
        "enable deepspeed --shim x",
        "config --config x.toml",
        "report x",
    ],
)
def test_a_folder_that_is_gone_is_said_in_a_line(tmp_path: Path, command: str) -> None:
    gone = shlex.quote(str(tmp_path / "gone"))
    cd = f"mkdir {gone}; cd {gone}; rmdir {gone};"
    done = subprocess.run(
        ["bash", "-c", f"{cd} {shlex.quote(sys.executable)} -c {shlex.quote(MAIN)} {command}"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n"), "Traceback" in done.stderr) == (2, 1, False)


def test_a_home_without_room_for_matplotlib_is_not_worth_a_warning(tmp_path: Path) -> None:
    environment = {"HOME": "/proc/nobody", "MPLCONFIGDIR": "", "XDG_CONFIG_HOME": "", "XDG_CACHE_HOME": ""}
    done = perseus_dist(f"{PLAN} --out {shlex.quote(str(tmp_path))}", **environment)
    assert (done.returncode, done.stderr) == (0, "")
