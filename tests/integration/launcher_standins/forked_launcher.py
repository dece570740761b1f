"""DeepSpeed's launcher without its two seconds of imports: it is imported once, and every launch is a fork.

Reads launches from standard input, a JSON array of objects a line: what runs at the same time. Answers each line with
the exit codes.
"""

import json
import os
import sys
import traceback
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed logs to standard output
    import deepspeed.launcher.runner  # noqa: F401

    for line in sys.stdin:
        pids = [_fork(launch) for launch in json.loads(line)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), file=answers, flush=True)


def _fork(launch: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = _run(launch)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(launch: dict[str, Any]) -> int:
    """What the console script does, from ``sys.exit(main())`` on."""
    output = os.open(launch["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(launch["cwd"])
    os.environ.clear()
    os.environ.update(launch["environment"])
    sys.argv = launch["argv"]
    from deepspeed.launcher import runner

    from perseus_dist.deepspeed.launcher.runner_patch import patch_runner

    patch_runner(runner, is_always_on=launch["is_always_on"])
    try:
        code = runner.main()
    except SystemExit as exit_:
        code = exit_.code
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    main()
