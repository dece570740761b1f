"""Parses drawn argument lists with a framework's own parser and with an enabled one, in one process, and compares.

    python tests/stress/compare_parsers.py deepspeed --count 10000
    PYTHONPATH=build/megatron/0.17.1 python -m perseus_dist.simulation.megatron_on_cpu \\
        tests/stress/compare_parsers.py megatron --count 10000

No list asks for Perseus: outcomes are to be equal, that is the namespace or the exit code, standard output and standard
error. A share of DeepSpeed's lists has our options among the script's own arguments, of which the launcher warns: there
the namespace or the exit code counts. Prints a JSON object; 1 if any list differs.
"""

import argparse
import contextlib
import io
import json
import logging
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from argument_lists import draw, options_in

from perseus_dist.training.option_values import OPTIONS
from perseus_dist.training.options import is_option

OURS = ["--perseus", "--enable-perseus", *(f"--perseus-{name}" for name in OPTIONS)]
BEFORE_SCRIPT: tuple[list[str], ...] = ([], ["--num_gpus", "2"], ["--module"], ["-i", "localhost:0", "--no_python"])
MOST_SHOWN = 20

Parse = Callable[[list[str]], Any]


def main() -> int:
    """Read the command line, draw, parse and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=("deepspeed", "megatron"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000, help="lists to draw")
    args = parser.parse_args()
    logging.disable()
    # In an enabled environment every process teaches the framework at its import; here enable() does.
    sys.meta_path[:] = [finder for finder in sys.meta_path if not hasattr(finder, "perseus_adapter")]
    chance = random.Random(args.seed)
    has_launcher = args.framework == "deepspeed"
    parse, enable = deepspeed() if has_launcher else megatron()
    shown = [outcome(parse, [word])[1:] for word in ("--help", "--no-such-option")]  # some of Megatron's help fails
    options = [word for word in options_in(str(shown)) if not is_help(word)]
    assert len(options) > 20
    assert not any(map(is_ours, options))

    lists = [draw(chance, options, has_script=has_launcher) for _ in range(args.count)]
    lists = [words for words in lists if not any(is_help(word) or is_ours(word) for word in words)]
    misplaced = (
        []
        if not has_launcher
        else [[*chance.choice(BEFORE_SCRIPT), "train.py", chance.choice(OURS), "x", *words] for words in lists[::10]]
    )

    began_s = time.monotonic()
    pristine = [outcome(parse, words) for words in lists + misplaced]
    enable()
    enabled = [outcome(parse, words) for words in lists + misplaced]
    took_s = time.monotonic() - began_s

    num_exact = len(lists)
    different = [
        {"list": words, "pristine": str(one), "enabled": str(other)}
        for number, (words, one, other) in enumerate(zip(lists + misplaced, pristine, enabled, strict=True))
        if (one != other if number < num_exact else one[0] != other[0])
    ]
    num_refused = sum(result.startswith("exit") for result, _, _ in pristine)
    found = {
        "parsed": len(pristine) - num_refused,
        "refused": num_refused,
        "differences": len(different),
        "lists a minute": round(len(pristine) / took_s * 60),
        "different": different[:MOST_SHOWN],
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return int(bool(different))


def deepspeed() -> tuple[Parse, Callable[[], None]]:
    """The launcher's parser, and what teaches it our options."""
    from deepspeed.launcher import runner

    from perseus_dist.deepspeed.launcher.runner_patch import patch_runner

    def parse(words: list[str]) -> Any:
        return runner.parse_args(words)

    return parse, lambda: patch_runner(runner)


def megatron() -> tuple[Parse, Callable[[], None]]:
    """The parser of Megatron's scripts, with options of the script's own, and what teaches it ours.

    It takes a quarter of a second to fill, so one is filled for all lists.
    """
    import megatron.training.arguments as module

    from perseus_dist.megatron.arguments import patch_arguments

    def filled() -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = argparse.ArgumentParser(allow_abbrev=False)
        parser = module.add_megatron_arguments(parser)
        group = parser.add_argument_group("a script's own")
        group.add_argument("--own-option", type=int)
        group.add_argument("--perseus-seed", type=int)
        return parser

    parsers = [filled()]

    def parse(words: list[str]) -> Any:
        return (parsers[-1].parse_args if len(words) % 2 else parsers[-1].parse_known_args)(words)

    def enable() -> None:
        patch_arguments(module)
        parsers.append(filled())

    return parse, enable


def outcome(parse: Parse, words: list[str]) -> tuple[str, str, str]:
    """Namespace, or how it ended; standard output; standard error."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            result = repr(parse(list(words)))
        except SystemExit as end:
            result = f"exit {end.code}"
        except Exception as failure:  # of a type function of the framework's
            result = f"exit by {failure!r}"
    return result, out.getvalue(), error.getvalue()


def is_help(word: str) -> bool:
    """Whether a word may ask for help, which shows our options in an enabled environment."""
    return word.startswith("-h") or (word.startswith("--h") and "--help".startswith(word))


def is_ours(word: str) -> bool:
    """Whether a word asks for Perseus after all."""
    return is_option(word) or is_option(word, flag="--enable-perseus")


if __name__ == "__main__":
    sys.exit(main())
