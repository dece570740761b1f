"""Stands in for ``pdsh -S -f N -w HOSTS COMMAND...``: a shell a host on this machine, in a fresh environment."""

import os
import subprocess
import sys

_WITH_VALUE = ("-f", "-R", "-l", "-t", "-u", "-x")


def main(arguments: list[str]) -> int:
    hosts: list[str] = []
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option == "-w":
            hosts = arguments.pop(0).split(",")
        elif option in _WITH_VALUE:
            arguments.pop(0)
    command = " ".join(arguments)
    if command.startswith("pkill"):  # DeepSpeed's, after Ctrl-C; here it would hit whatever else this machine runs
        return 0
    shells = []
    for number, host in enumerate(hosts):
        environment = {"HOME": os.environ["HOME"], "PATH": "/usr/bin:/bin", "STANDIN_HOST": host}
        text = command.replace("%n", str(number)).replace("%h", host)
        shells.append(subprocess.Popen(["bash", "-c", text], env=environment))
    return max(shell.wait() for shell in shells)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
