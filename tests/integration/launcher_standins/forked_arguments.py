"""Megatron's argument parser without its six seconds of imports: it is imported once, and every command line is a fork.

Reads from standard input a JSON object a line: what is parsed. Answers with the exit code.
"""

import json
import os
import sys
import traceback
from argparse import ArgumentParser
from typing import Any


def add_own(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument_group("a user's own").add_argument("--own-option", type=int)
    return parser


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import megatron.training.arguments  # noqa: F401

    for line in sys.stdin:
        _, status = os.waitpid(_fork(json.loads(line)), 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def _fork(case: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code: Any = 1
    try:
        _parse(case)
        code = 0
    except SystemExit as exit_:
        code = exit_.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _parse(case: dict[str, Any]) -> None:
    output = os.open(case["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(case["environment"])
    sys.argv = ["pretrain.py", *case["argv"]]
    from megatron.training.arguments import parse_args

    import perseus_dist.megatron
    from perseus_dist.megatron.requested import requested_options
    from perseus_dist.training.options import PerseusOptions

    if case["installs"] is not None:
        perseus_dist.megatron.install(PerseusOptions.from_text(case["installs"]))
    namespace = parse_args(add_own, ignore_unknown_args=case["ignores_unknown"])
    options = requested_options()
    found: dict[str, Any] = {
        "options": options and options.to_text(),
        "own_option": getattr(namespace, "own_option", None),
    }
    found["ours"] = [name for name in vars(namespace) if "perseus" in name]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
