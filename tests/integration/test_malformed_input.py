"""A thousand malformed inputs, over every argument and every file: exit 2 and one line that names the culprit.

``tests/stress/malformed_input.py`` tries as many as one likes, and says what was refused by kind.
"""

import subprocess
import sys
from pathlib import Path
from random import Random

from malformed.arguments import pairs, with_wrong
from malformed.case import Case, Expected
from malformed.judge import Tally, cases, judge, workplace

COUNT = 1_240
IN_PROCESSES = 8


def test_all_are_refused_in_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    tally, drawn = Tally(), []
    with workplace(tmp_path) as generators:
        for case in cases(generators, seed=7, count=COUNT):
            judge(case, tmp_path, tally)
            drawn.append(case)
        assert not tally.faults, "\n".join(tally.faults)
        assert tally.refused.total() > 1_000
        assert len(tally.refused) > 39, "every command and every kind of file"
        for case in [one for one in drawn if one.files and one.expected is Expected.REFUSED][::100][:IN_PROCESSES]:
            check_in_a_process(case, tmp_path)


def test_each_argument_of_each_command_is_refused_a_wrong_value(tmp_path: Path) -> None:
    tally, rng = Tally(), Random(11)
    with workplace(tmp_path):
        for command, argument in pairs():
            judge(with_wrong(rng, command, argument), tmp_path, tally)
    assert not tally.faults, "\n".join(tally.faults)


def check_in_a_process(case: Case, folder: Path) -> None:
    for name, data in case.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    command = [sys.executable, "-P", "-m", "perseus_dist", *case.argv]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, b""), case
    assert done.stderr.startswith(b"perseus-dist")
    assert done.stderr.count(b"\n") == 1, done.stderr
    assert not (folder / "plans").exists()
