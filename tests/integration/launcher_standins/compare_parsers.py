"""Parses drawn command lines with DeepSpeed's launcher, pristine and enabled, and prints what differs.

python compare_parsers.py SEED COUNT
"""

import contextlib
import io
import json
import random
import sys
from typing import Any

from deepspeed.launcher import runner

from perseus_dist.deepspeed.launcher.runner_patch import patch_runner

OPTIONS = [
    "--num_gpus",
    "--num_nodes",
    "--hostfile",
    "-H",
    "-i",
    "--include",
    "--exclude",
    "--master_port",
    "--launcher",
]
OPTIONS += [
    "--num_g",
    "--master_a",
    "--module",
    "--no_python",
    "--no_ssh",
    "--autotuning",
    "--elastic_training",
    "--venv_script",
]
SCRIPTS = [
    "--p",
    "--pe",
    "--per",
    "--pers",
    "--perse",
    "--perseu",
    "--p=2",
    "--per=x",
    "-p",
    "--lr",
    "--profile",
    "--report",
]
SCRIPTS += [
    "--num_gpus",
    "--target",
    "--planner",
    "--",
    "-",
    "--local_rank=0",
    "--x=%s",
    "--deepspeed_config",
    "--deepspeed",
]
WORDS = [
    "train.py",
    "2",
    "1e-4",
    "run",
    "ds.json",
    "localhost:0",
    "",
    "a b",
    "slurm",
    "-1",
    "@file",
    "ü",
    "--=",
    "train.zip",
]


def draw(chance: random.Random) -> list[str]:
    """A command line without a word of ours: mostly options, a script, and its own arguments."""

    def some(words: list[str], most: int) -> list[str]:
        return [word for _ in range(chance.randint(0, most)) for word in (chance.choice(words), chance.choice(WORDS))]

    if chance.random() < 0.2:
        return [chance.choice(OPTIONS + SCRIPTS + WORDS) for _ in range(chance.randint(0, 8))]
    return [*some(OPTIONS, 2), *(["train.py"] if chance.random() < 0.9 else []), *some(SCRIPTS + OPTIONS, 4)]


def parsed(argv: list[str]) -> tuple[Any, str, str]:
    """Namespace or exit code, standard output, standard error."""
    out, error = io.StringIO(), io.StringIO()
    result: Any
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            result = vars(runner.parse_args(argv))
        except SystemExit as end:
            result = f"exit {end.code}"
    return result, out.getvalue(), error.getvalue()


def main() -> None:
    """Print a JSON object: how many were parsed and how many were refused, and the command lines that differ."""
    chance = random.Random(int(sys.argv[1]))
    drawn = [draw(chance) for _ in range(int(sys.argv[2]))]
    pristine = [parsed(argv) for argv in drawn]
    patch_runner(runner)
    enabled = [parsed(argv) for argv in drawn]
    different = [argv for argv, one, other in zip(drawn, pristine, enabled, strict=True) if one != other]
    refused = sum(isinstance(result, str) for result, _, _ in pristine)
    sys.stdout.write(json.dumps({"parsed": len(drawn) - refused, "refused": refused, "different": different}) + "\n")


if __name__ == "__main__":
    main()
