"""``--perseus`` for ``deepspeed.launcher.runner``, the launcher's front end.

```
deepspeed --perseus --num_gpus 4 train.py --lr 1e-4
  runner.parse_args (ours around theirs)   user_script = rank_main.py
                                           user_args   = --perseus-options B64 script train.py --lr 1e-4
  runner.main, launch.py, pdsh, srun, mpirun: as ever; each rank runs
  python -u rank_main.py --local_rank=0 --perseus-options B64 script train.py --lr 1e-4
```

Options travel as an argument, because environment variables do not reach other hosts under pdsh. The bootstrap is a
file and not ``--module``, which DeepSpeed drops under Slurm and misplaces under MPICH.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace, TracebackType

from perseus_dist.errors import PerseusError
from perseus_dist.training.disabled import is_disabled, is_enabled
from perseus_dist.training.option_parser import OptionParser
from perseus_dist.training.options import (
    OptionError,
    PerseusOptions,
    check_profile,
    is_asked_for,
    is_option,
    options_from_environment,
    options_from_namespace,
)
from perseus_dist.training.report_launcher import LONGEST_AFTER_FAILURE_S, ReportLauncher

RANK_MAIN = str(Path(__file__).parents[1] / "rank_main.py")
OPTIONS_FLAG = "--perseus-options"

_log = logging.getLogger(__name__)


class LauncherError(PerseusError):
    """DeepSpeed's launcher is of a version that cannot take our options."""


def patch_runner(runner: ModuleType, *, is_always_on: bool = False) -> None:
    """Add our options to DeepSpeed's launcher. A second call changes nothing but ``is_always_on``.

    Args:
        runner: The module ``deepspeed.launcher.runner``.
        is_always_on: Perseus is requested without ``--perseus``.

    Raises:
        LauncherError: The launcher is of an unknown version.
    """
    if not all(hasattr(runner, name) for name in ("argparse", "parse_args", "main")):
        raise LauncherError(
            f"{runner.__file__} is not the launcher that it was in DeepSpeed 0.14.5 to 0.19.8; install one of these"
        )
    patch = getattr(runner.main, "__self__", None)
    if not isinstance(patch, _RunnerPatch):
        patch = _RunnerPatch(runner)
        runner.parse_args, runner.main = patch.parse_args, patch.main  # type: ignore[attr-defined]
    patch.is_always_on |= is_always_on


class _RunnerPatch:
    """Replacements of the module's ``parse_args`` and ``main``."""

    def __init__(self, runner: ModuleType) -> None:
        self.is_always_on = False
        self._runner = runner
        self._parse_args: Callable[[Sequence[str] | None], argparse.Namespace] = runner.parse_args
        self._main: Callable[[Sequence[str] | None], object] = runner.main
        self._report: ReportLauncher | None = None

    def parse_args(self, args: Sequence[str] | None = None) -> argparse.Namespace:
        """DeepSpeed's own, which knows our options too; then the script is replaced by the bootstrap that runs it.

        Raises:
            SystemExit: With 2, after one line, where an option cannot be served.
        """
        # Its parser is made, filled and used inside that one function, so ours must be the class that it finds there.
        theirs = self._runner.argparse
        self._runner.argparse = SimpleNamespace(**{**vars(theirs), "ArgumentParser": OptionParser})  # type: ignore[attr-defined]
        try:
            namespace = self._parse_args(args)
        finally:
            self._runner.argparse = theirs  # type: ignore[attr-defined]
        if is_disabled():
            return namespace
        _warn_of_misplaced(namespace)
        if self.is_always_on or is_asked_for(namespace) or is_enabled():
            try:
                self._replace_command(namespace)
            except OptionError as error:
                _log.debug("refused", exc_info=True)
                sys.stderr.write(f"{Path(sys.argv[0]).name}: {' '.join(str(error).split())}\n")
                raise SystemExit(2) from None
        return namespace

    def main(self, args: Sequence[str] | None = None) -> object:
        """DeepSpeed's own; when the job has ended, however it did, its report is made where one was asked for."""
        try:
            result = self._main(args)
        except SystemExit as end:  # how the job's exit code is passed on
            if _comes_of_a_signal(end):
                self._tell_command()
            else:
                self._finish(has_failed=bool(end.code))
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self._tell_command()
            _stay_out_of_traceback()
            raise
        self._finish(has_failed=False)
        return result

    def _replace_command(self, namespace: argparse.Namespace) -> None:
        given = options_from_namespace(namespace)
        check_profile(given)  # of one that a variable names, which is many jobs', the agent warns
        options = given.over(options_from_environment())
        if namespace.autotuning:
            raise OptionError(
                "--perseus, or PERSEUS_ENABLE=1, and --autotuning exclude each other: autotuning changes what runs "
                "between its trials. Tune first, then run the tuned configuration under --perseus"
            )
        if namespace.no_python and namespace.module:
            raise OptionError("--no_python and --module exclude each other")
        if options.report is not None and not (namespace.no_ssh and namespace.node_rank > 0):
            self._report = ReportLauncher(options.report)
        how = "exec" if namespace.no_python else "module" if namespace.module else "script"
        namespace.user_args = [*bootstrap_arguments(options, how, namespace.user_script), *namespace.user_args]
        namespace.user_script, namespace.module, namespace.no_python = RANK_MAIN, False, False

    def _finish(self, *, has_failed: bool) -> None:
        """A job that was asked to end by SIGTERM looks like one that failed, and must end soon."""
        if self._report is None:
            return
        try:
            self._report.make(longest_s=LONGEST_AFTER_FAILURE_S if has_failed else None)
        except KeyboardInterrupt:
            sys.excepthook = _show_nothing  # the command that makes the report has been named
            raise

    def _tell_command(self) -> None:
        if self._report is not None:
            self._report.tell_command()


def bootstrap_arguments(options: PerseusOptions, how: str, target: str) -> list[str]:
    """Arguments of ``rank_main`` before the user's own."""
    return [OPTIONS_FLAG, options.to_text(), how, target]


def _comes_of_a_signal(end: SystemExit) -> bool:
    """Whether DeepSpeed's handler of SIGINT and SIGTERM raised it, which it has where other hosts take part."""
    trace = end.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_name == "sigkill_handler"


def _stay_out_of_traceback() -> None:
    """Have what is raised in DeepSpeed's launcher shown as if this module did not stand around it."""
    show = sys.excepthook

    def show_theirs(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        each = trace
        while each is not None:
            while each.tb_next is not None and each.tb_next.tb_frame.f_code.co_filename == __file__:
                each.tb_next = each.tb_next.tb_next
            each = each.tb_next
        show(kind, error, trace)

    sys.excepthook = show_theirs


def _show_nothing(*_: object) -> None:
    pass


def _warn_of_misplaced(namespace: argparse.Namespace) -> None:
    misplaced = [argument for argument in namespace.user_args if is_option(argument)]
    if misplaced:
        _log.warning(
            "%s stands after %s and goes to the script; options of the launcher stand before it",
            misplaced[0],
            namespace.user_script,
        )
