"""Stands in for ``srun -n N ... --export=ALL,K=V COMMAND...``: N tasks on this machine."""

import os
import subprocess
import sys

_WITH_VALUE = ("--comment", "--nodelist", "--nodes", "--gpus", "--gpus-per-node")


def main(arguments: list[str]) -> int:
    num_tasks = 1
    environment = dict(os.environ)
    while arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option == "-n":
            num_tasks = int(arguments.pop(0))
        elif option in _WITH_VALUE:
            arguments.pop(0)
        elif option.startswith("--export="):
            environment |= dict(pair.split("=", 1) for pair in option.removeprefix("--export=").split(",")[1:])
    tasks = [
        subprocess.Popen(arguments, env={**environment, "SLURM_PROCID": str(task), "SLURM_NTASKS": str(num_tasks)})
        for task in range(num_tasks)
    ]
    return max(task.wait() for task in tasks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
