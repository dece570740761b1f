"""``perseus-dist sim``: run any command on a machine of simulated GPUs."""

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Sequence

from perseus_dist.cli.number_options import real, whole
from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.gpu import GpuState
from perseus_dist.simulator.machine import SimulatedMachine
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.search_path import searchable_path
from perseus_dist.simulator.throttle import ThrottleScript, parse_throttle
from perseus_dist.simulator.work import MAX_WORK_S, work_environment

LEFT_LOCKED_EXIT_CODE = 3
_RELEASE_GRACE_S = 2.0  # an agent or a clock daemon may outlive the command by a moment, to release clocks
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WATCHED = {*_FORWARDED, signal.SIGCHLD}
_LOOK_S = 0.2
_TIME_MS = real(1e-3, MAX_WORK_S * 1e3, "the time in ms at the maximum clock, as in 35")
_TRANSFER_MS = real(1e-3, MAX_WORK_S * 1e3, "the time in ms, as in 5")
_STEP_MS = real(0, MAX_WORK_S * 1e3, "the time in ms, as in 20")
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)  # which the command should not inherit

_EPILOG = """\
example:
  perseus-dist sim --gpu a100 --count 4 -- python -c "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"
  perseus-dist sim --count 4 --forward-ms 35 --backward-ms 65 -- deepspeed --perseus --num_gpus 4 train.py
  perseus-dist sim --gpu a100,a40 --forward-ms 35 --backward-ms 65 -- deepspeed --perseus --num_gpus 2 train.py
  perseus-dist sim --gpu a100 --cuda -- perseus-dist measure --seconds 20
  perseus-dist sim --count 4 --throttle 3:1005@60 --throttle 3:none@120 --forward-ms 35 ... -- deepspeed ...

With --forward-ms and --backward-ms, each forward and backward of a training job under Perseus also runs as a kernel on
a simulated GPU: that of index i for local rank i. The real work happens on the CPU meanwhile; give longer times than
that takes. The optimizer's step takes no time on the GPU unless --step-ms says so.

With --throttle a GPU overheats so many seconds after COMMAND's start: NVML tells of it, and no kernel runs above that
clock until another --throttle changes the cap, or lifts it with "none".

COMMAND and its children find the simulated GPUs wherever they load libnvidia-ml.so.1 by name, as nvidia-ml-py does.
When it has ended, this prints what each GPU consumed and whether its clock is still locked. A clock counts as left
locked if nobody has released it 2 s after COMMAND's end.

SIGINT, SIGTERM and SIGHUP are passed on to COMMAND. After a SIGKILL of this process COMMAND goes on, with GPUs on which
nothing happens any more, and is yours to end.

The exit code is that of COMMAND (128 + number if a signal ended it), or 3 if COMMAND succeeded and left a clock locked.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "sim",
        help="run a command on simulated GPUs",
        description="Run a command that sees simulated GPUs through NVML.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--gpu",
        default="a100",
        metavar="MODEL[,MODEL...]",
        help=f"GPU model, one of {', '.join(PRESETS)}; or one for each GPU, as a100,a40 (default: %(default)s)",
    )
    parser.add_argument(
        "--count",
        type=whole(1, 64, "1 to 64 GPUs"),
        metavar="N",
        help="number of GPUs, 1 to 64 (default: as many as --gpu names models)",
    )
    parser.add_argument(
        "--cuda",
        action="store_true",
        help="also a stand-in libcuda.so.1 (streams, events, no kernels of one's own); not for CUDA frameworks",
    )
    parser.add_argument(
        "--forward-ms", type=_TIME_MS, metavar="MS", help="time of a stage's forward at the maximum clock"
    )
    parser.add_argument("--backward-ms", type=_TIME_MS, metavar="MS", help="time of a stage's backward")
    parser.add_argument(
        "--imbalance",
        type=real(-0.99, 10, "a share from -0.99 to 10"),
        metavar="SHARE",
        help="0.1: the last stage takes 10 %% longer than the first",
    )
    parser.add_argument(
        "--transfer-ms",
        type=_TRANSFER_MS,
        metavar="MS",
        help="time of sending an activation or a gradient to the next stage (default: none)",
    )
    parser.add_argument(
        "--step-ms",
        type=_STEP_MS,
        metavar="MS",
        help="time of the optimizer's step, the same at every clock (default: 0)",
    )
    parser.add_argument(
        "--throttle",
        action="append",
        default=[],
        metavar="GPU:MHZ@SECONDS",
        help="overheat a GPU in mid-run; again for more",
    )
    parser.add_argument("--unprivileged", action="store_true", help="nobody may set clocks")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what to run, after --")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run a command on simulated GPUs."""
    work = _work_environment(args)
    count = args.gpu.count(",") + 1 if args.count is None else args.count
    throttles = [parse_throttle(text) for text in args.throttle]
    # The thread that waits takes signals itself. Those that numerical libraries have started before may get one first:
    # it is noted then, or, if it told the command's end, found out a moment later.
    strays: list[int] = []
    heeded = [number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores
    handlers = {number: signal.signal(number, lambda number, _frame: strays.append(number)) for number in heeded}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)  # the machine's thread inherits it
    try:
        with SimulatedMachine(args.gpu, count=count, unprivileged=args.unprivileged) as machine:
            script = ThrottleScript(throttles, machine.gpus)
            started = [gpu.state() for gpu in machine.gpus]
            environment = {
                **os.environ,
                "PATH": searchable_path(),
                **machine.environment(cuda=args.cuda),
                **work,
            }
            began_s = time.monotonic()
            exit_code = _run_command(
                args.command, environment, strays, lambda: script.apply_due(time.monotonic() - began_s)
            )
            _wait_for_release(machine)
            report = _report(args.command, exit_code, machine, started)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    print(json.dumps(report) if args.json else _text(report), flush=True)
    if exit_code == 0 and report["clocks_left_locked"]:
        return LEFT_LOCKED_EXIT_CODE
    return exit_code


def _work_environment(args: argparse.Namespace) -> dict[str, str]:
    if {args.forward_ms, args.backward_ms, args.imbalance, args.transfer_ms, args.step_ms} == {None}:
        return {}
    if args.forward_ms is None or args.backward_ms is None:
        raise SimulatorError("simulated work needs both --forward-ms and --backward-ms")
    return work_environment(
        forward_s=args.forward_ms / 1e3,
        backward_s=args.backward_ms / 1e3,
        imbalance=args.imbalance or 0.0,
        transfer_s=(args.transfer_ms or 0.0) / 1e3,
        step_s=(args.step_ms or 0.0) / 1e3,
    )


def _run_command(
    command: Sequence[str], environment: dict[str, str], strays: list[int], look: Callable[[], object]
) -> int:
    """Spawn, and wait, passing signals on and looking a few times a second. The watched signals must be blocked."""
    try:
        pid = os.posix_spawnp(command[0], list(command), environment, setsigmask=(), setsigdef=_PYTHON_IGNORES)
    except (OSError, ValueError) as error:  # the latter of an empty text
        reason = getattr(error, "strerror", None) or error
        raise SimulatorError(f"COMMAND {command[0]!r}: cannot be run ({reason}); name a command after --") from None
    while True:
        look()
        info = signal.sigtimedwait(_WATCHED, _LOOK_S)
        # Sent by a process; what the terminal sends, the command gets as well.
        if info is not None and info.si_signo != signal.SIGCHLD and info.si_code <= 0:
            strays.append(info.si_signo)
        while strays:
            os.kill(pid, strays.pop(0))
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _wait_for_release(machine: SimulatedMachine) -> None:
    deadline = time.monotonic() + _RELEASE_GRACE_S
    while time.monotonic() < deadline and not all(gpu.state().is_unlocked for gpu in machine.gpus):
        time.sleep(0.02)


def _report(
    command: Sequence[str], exit_code: int, machine: SimulatedMachine, started: Sequence[GpuState]
) -> dict[str, object]:
    gpus = []
    for gpu, before in zip(machine.gpus, started, strict=True):
        after = gpu.state()
        energy_j = after.true_energy_j - before.true_energy_j
        seconds = (after.time_ns - before.time_ns) * 1e-9
        gpus.append(
            {
                "index": gpu.index,
                "device": "simulated GPU",
                "name": gpu.preset.nvml_name,
                "uuid": gpu.uuid,
                "energy_j": energy_j,
                "mean_power_w": energy_j / seconds,
                "seconds": seconds,
                "kernel_seconds": after.running_s - before.running_s,
                "locked_mhz": after.locked_mhz,
            }
        )
    return {
        "command": list(command),
        "exit_code": exit_code,
        "simulated": True,
        "gpus": gpus,
        "clocks_left_locked": sum(gpu["locked_mhz"] is not None for gpu in gpus),
    }


def _text(report: dict[str, object]) -> str:
    lines = []
    gpus = report["gpus"]
    assert isinstance(gpus, list)
    for gpu in gpus:
        lock = "clock not locked"
        if gpu["locked_mhz"] is not None:
            lock = f"CLOCK STILL LOCKED at {'-'.join(str(mhz) for mhz in sorted(set(gpu['locked_mhz'])))} MHz"
        lines.append(
            f"{gpu['device']} {gpu['index']} ({gpu['name']}): {gpu['energy_j']:.1f} J in {gpu['seconds']:.2f} s, "
            f"mean {gpu['mean_power_w']:.1f} W, {gpu['kernel_seconds']:.2f} s in kernels, {lock}"
        )
    return "\n".join(lines)
