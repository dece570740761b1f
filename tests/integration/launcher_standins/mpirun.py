"""Stands in for ``mpirun`` as Open MPI, MPICH and Intel MPI spell it: ranks on this machine."""

import os
import subprocess
import sys

_WITH_VALUE = ("-ppn", "-hostfile", "--hostfile", "-hosts")


def main(arguments: list[str]) -> int:
    shared = dict(os.environ)
    ranks: list[subprocess.Popen[bytes]] = []
    while arguments:
        num_ranks = 1
        own: dict[str, str] = {}
        while arguments[0].startswith("-"):
            option = arguments.pop(0)
            if option in ("-n", "-np"):
                num_ranks = int(arguments.pop(0))
            elif option in _WITH_VALUE:
                arguments.pop(0)
            elif option in ("--mca", "-mca"):
                del arguments[:2]
            elif option in ("-x", "-genv", "-env"):
                name, is_pair, value = arguments.pop(0).partition("=")
                (own if option == "-env" else shared)[name] = value if is_pair else arguments.pop(0)
        end = arguments.index(":") if ":" in arguments else len(arguments)  # between Intel MPI's commands
        command, arguments = arguments[:end], arguments[end + 1 :]
        for _ in range(num_ranks):
            number = str(len(ranks))
            numbers = {"OMPI_COMM_WORLD_RANK": number, "PMI_RANK": number, "MPI_LOCALRANKID": number}
            ranks.append(subprocess.Popen(command, env={**shared, **own, **numbers}))
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
