"""``perseus-dist quickstart``: the main job, a small GPT under ``deepspeed --perseus``, from baseline to report."""

import argparse
import fcntl
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseus_dist.cli.planning.schedule_options import positive_int
from perseus_dist.errors import OutputError
from perseus_dist.simulator.presets import PRESETS

if TYPE_CHECKING:
    from perseus_dist.report.analysis.figures import RunReport
    from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun

Watch = Callable[[Mapping[str, Any]], None]

_FORWARD_S, _BACKWARD_S = 0.035, 0.065
_IMBALANCE = 0.15  # the last stage has the head; no partition of whole layers is even
_FOR_A_GPU = ("--hidden", "2048", "--layers", "32", "--heads", "16", "--sequence-length", "1024")
"""A model whose instructions keep a real GPU busy for some ten milliseconds."""
_SIMULATED = "a100"
_LINE_EVERY = 10  # iterations, where there is no terminal

_EPILOG = """\
example:
  perseus-dist quickstart --stages 2 --pipelines 2 --out perseus-report

Trains examples/deepspeed_gpt.py twice: with 'deepspeed --perseus' and, to compare the losses, without. On NVIDIA
GPUs, if there are as many as ranks and a daemon that you may ask ('perseus-dist clockd', or zeusd) sets their clocks;
otherwise on simulated ones, whose clocks, times and energies are a model while DeepSpeed, PyTorch, agents and planner
are the real ones. The exit code is 0 if the job ran under a plan, left no clock locked, and its losses are those of
the job without Perseus, bit by bit.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "quickstart",
        help="train a small GPT with 'deepspeed --perseus', and show what that saved",
        description="Train a small GPT with 'deepspeed --perseus', and show what that saved.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--stages", type=positive_int, default=4, metavar="S", help="pipeline stages (default: 4)")
    parser.add_argument("--pipelines", type=positive_int, default=1, metavar="D", help="replicas (default: 1)")
    parser.add_argument("--steps", type=positive_int, default=60, metavar="N", help="iterations (default: %(default)s)")
    parser.add_argument(
        "--gpu",
        choices=("auto", "real", *PRESETS),
        default="auto",
        help="train on this machine's GPUs (real), or simulate this model, whatever there is (default: auto)",
    )
    parser.add_argument(
        "--examples", type=Path, default=Path("examples"), metavar="DIR", help="where deepspeed_gpt.py is"
    )
    parser.add_argument("--out", type=Path, default=Path("perseus-report"), metavar="DIR", help="for the report")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, compare, report."""
    from perseus_dist.simulation.supervised import supervised

    training = _training(args)
    with _alone_in(args.out), supervised(), nullcontext() if training.preset is None else _no_settings():
        return _run(args, training)


def _run(args: argparse.Namespace, training: "DeepSpeedRun") -> int:
    from perseus_dist.report.analysis.losses import losses_equal
    from perseus_dist.report.run_report import build_report, summary_text, write_report
    from perseus_dist.simulation.frameworks.training_run import TrainingFailedError

    _say(f"this job trains on {'NVIDIA' if training.preset is None else f'simulated {training.preset.upper()}'} GPUs:")
    _say(f"  {shlex.join(training.command(with_perseus=True))}")
    try:
        with _progress(args.steps) as watch:
            num_locked = training.train(watch)
        _say("the same job without Perseus, for its losses")
        training.train_without()
    except TrainingFailedError as error:
        _say(error.log_tail)
        raise
    report = build_report(
        args.out,
        losses_equal=losses_equal(training.losses, training.reference_losses),
        clocks_left_locked=num_locked,
    )
    report = write_report(report, args.out)
    print(json.dumps(report.document()) if args.json else summary_text(report), flush=True)
    if not report.is_planned and _was_on_its_way(report):
        _say("the job ended before its plan: give more --steps")
    return 0 if report.is_planned and report.losses_equal and not num_locked else 1


@contextmanager
def _no_settings() -> Iterator[None]:
    """Without variables that say where real jobs find their planner and keep their profiles and records."""
    from perseus_dist.simulation.processes import without_settings

    inherited = dict(os.environ)
    for name in inherited.keys() - without_settings(inherited).keys():
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(inherited)


def _was_on_its_way(report: "RunReport") -> bool:
    """Whether a longer job would have had a plan: what was missing was time, and no right or daemon."""
    phases = [entered.phase for entered in report.job.phases if entered.phase != "done"]
    return phases[-1:] in ([phase] for phase in ("warming_up", "profiling", "planning"))


def _training(args: argparse.Namespace) -> "DeepSpeedRun":
    from perseus_dist.simulation.errors import SimulationError
    from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
    from perseus_dist.training.opt_in import pth_file

    if find_spec("deepspeed") is None:
        raise SimulationError(
            "there is no DeepSpeed here to train with; install it: pip install 'perseus-dist[deepspeed]'"
        )

    script, config = args.examples / "deepspeed_gpt.py", args.examples / "deepspeed_gpt.json"
    if not (os.path.isfile(script) and os.path.isfile(config)):  # noqa: PTH113 - Path.is_file raises at long names
        raise SimulationError(
            f"--examples {args.examples}: no deepspeed_gpt.py there; run this where the project's files are"
        )
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"--out {args.out}: cannot be made ({error.strerror}); name another folder") from None
    preset = _preset(args.gpu, args.stages * args.pipelines)
    return DeepSpeedRun(
        script=script,
        config=config,
        num_stages=args.stages,
        num_pipelines=args.pipelines,
        num_steps=args.steps,
        folder=args.out,
        preset=preset,
        forward_s=_FORWARD_S,
        backward_s=_BACKWARD_S,
        imbalance=_IMBALANCE,
        options=() if preset else _FOR_A_GPU,
        launcher="deepspeed" if pth_file("deepspeed").exists() else "perseus-deepspeed",
    )


def _preset(wanted: str, num_ranks: int) -> str | None:
    """The GPU to simulate; None where the machine has enough of its own, and we may set their clocks.

    Raises:
        SimulationError: The machine's own are asked for, and would show nothing.
    """
    from perseus_dist.device.nvml.nvml import Nvml, NvmlError
    from perseus_dist.device.trial import why_clocks_stay
    from perseus_dist.simulation.errors import SimulationError

    if wanted in PRESETS:
        return wanted
    has_gpus, trouble, remedy = True, "", f"give --gpu {_SIMULATED}"
    try:
        uuids = Nvml().uuids()
    except NvmlError as error:
        has_gpus, trouble = False, f"this machine has no NVIDIA GPU that can be used: {error}"
    else:
        if len(uuids) < num_ranks:
            trouble = f"this machine has {len(uuids)} NVIDIA GPUs and the job {num_ranks} ranks"
        elif refusal := next(filter(None, (why_clocks_stay(uuid, os.environ) for uuid in uuids[:num_ranks])), ""):
            trouble = f"the clocks of this machine's GPUs cannot be set, and without that nothing is saved: {refusal}"
            remedy = "run 'perseus-dist clockd --group GROUP' as root, with a group of yours, and try again"
    if not trouble:
        return None
    if wanted == "real":
        raise SimulationError(f"--gpu real: {trouble}; {remedy}")
    if has_gpus:
        _say(f"{trouble}; so GPUs are simulated (for your own: {remedy})")
    return _SIMULATED


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two quickstarts must not write the same report.

    Raises:
        OutputError: Another one does, or we cannot.
    """
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"--out {folder}: cannot be written to; name another folder")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OutputError(f"--out {folder}: another quickstart writes its report there; name another folder") from None
    except OSError:  # a file system that locks no folders
        pass
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _progress(num_steps: int) -> Iterator[Watch]:
    """Show the job's progress: a display on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines(num_steps)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("[bold]{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[live]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("starting", total=num_steps, live="")
        lines = _Lines(num_steps, say=progress.console.print, every=num_steps)

        def watch(job: Mapping[str, Any]) -> None:
            lines(job)
            progress.update(task, description=job["phase"], completed=_iteration(job) + 1, live=_live(job))

        yield watch


class _Lines:
    """A line for every phase, and one now and then between."""

    def __init__(self, num_steps: int, *, say: Callable[[str], None] | None = None, every: int = _LINE_EVERY) -> None:
        self._num_steps = num_steps
        self._say = say or _say
        self._every = every
        self._phase = ""
        self._told = 0

    def __call__(self, job: Mapping[str, Any]) -> None:
        iteration = _iteration(job) + 1
        if job["phase"] != self._phase:
            self._phase = job["phase"]
            self._say(f"{self._phase}: {job['reason']}")
        elif iteration >= self._told + self._every:
            self._told = iteration
            self._say(f"{self._phase}: iteration {iteration} of {self._num_steps}{_live(job)}")


def _iteration(job: Mapping[str, Any]) -> int:
    return max((int(pipeline["iteration"]) for pipeline in job["pipelines"]), default=-1)


def _live(job: Mapping[str, Any]) -> str:
    """Time and energy of the newest iteration, beside the baseline's once there is one."""
    time_s = max((pipeline["time_s"] for pipeline in job["pipelines"]), default=0.0)
    energy_j = sum(pipeline["energy_j"] for pipeline in job["pipelines"])
    if not time_s:
        return ""
    live = f"  {time_s:.3f} s"
    if energy_j:
        live += f"  {energy_j:.0f} J"
    baseline = job["baseline"]
    if energy_j and baseline["energy_j"]:
        live += f" ({100 * (energy_j / baseline['energy_j'] - 1):+.1f} %)"
    return live


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
