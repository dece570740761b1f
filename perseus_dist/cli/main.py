"""``perseus-dist``: run one command, with one way to fail.

Nothing that takes time is imported before ``main`` is at work, so that Ctrl-C finds it from the beginning.
"""

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from perseus_dist.cli.streams import discard_refused, open_streams, write_error
from perseus_dist.errors import PerseusError, TransientError

_EXTRAS = {
    **dict.fromkeys(("google", "grpc", "grpc_health", "grpc_reflection", "grpc_status"), "planner"),
    "prometheus_client": "planner",
    "pynvml": "agent",
    "matplotlib": "report",
    "shtab": "completion",
}
"""By package that a command imports when it runs, which extra of ours installs it."""
_MENDABLE = {
    getattr(errno, name)
    for name in ("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "ENAMETOOLONG", "ELOOP", "ENOTDIR")
}
"""Errors of a path that the user can mend; any other that no command has expected is a defect."""
_TRANSIENT, _REFUSED = 1, 2
_SIGINT = 2
_SIGTERM = 15


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM to the first process of a container, where the command has not said yet what it does then."""

    number = _SIGTERM


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit code: 0; 2 for bad input or an output that cannot be written, after one line on standard error; 1 where
        a service cannot serve now, and may later without a change of its settings, after one line as well; 128
        and the signal's number after Ctrl-C, or after a signal that a command takes as its end.
    """
    code = None
    try:
        if os.getpid() == 1:
            _handle_sigterm()
        open_streams()
        try:
            code = _run(sys.argv[1:] if argv is None else argv)
        finally:
            with suppress(OSError):
                sys.stdout.flush()  # also what --help has printed
            if code != _REFUSED and (error := write_error(sys.stdout)):  # a refusal is one line
                raise error
        return code
    except KeyboardInterrupt as stop:
        _complain("interrupted")
        return 128 + getattr(stop, "number", _SIGINT)
    except BrokenPipeError:  # the reader of our output left, as in `perseus-dist ... | head`
        return code or 0
    except OSError:
        if error := write_error(sys.stdout):
            _complain(f"standard output cannot be written ({error.strerror}); give it a file, a pipe or /dev/null")
        elif not write_error(sys.stderr):
            raise
        return 2
    finally:
        discard_refused()


def _handle_sigterm() -> None:
    """Have SIGTERM end this process also as PID 1, to which the kernel delivers no signal that has no handler.

    Commands that serve replace the handler; else a container that is stopped while it starts would be waited for until
    it is killed.
    """
    import signal

    def end(number: int, frame: object) -> None:  # noqa: ARG001 - as signal wants it
        raise _TerminatedError

    signal.signal(signal.SIGTERM, end)


def _run(words: Sequence[str]) -> int:
    parser = import_module("perseus_dist.cli.parser")
    # Clocks stay locked while a clockd that was killed starts again: it must not import what others need.
    command = tuple(word for word in words[:1] if word in parser.COMMANDS)
    whole = parser.build_parser(command if command or words[:1] == ["--version"] else parser.COMMANDS)
    given = ()
    try:
        if command:
            given = import_module("perseus_dist.cli.settings.defaults").set_defaults(whole, words, os.environ)
    except PerseusError as error:
        _complain(parser.one_line(str(error)))
        return 2
    args = whole.parse_args(words)
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns where it cannot keep its cache of fonts
    try:
        if hasattr(args, "output_parser"):
            import_module("perseus_dist.cli.output_option").check_outputs(args)
        code: int = args.run(args)
    except PerseusError as error:
        message = str(error)
        if given:
            message = import_module("perseus_dist.cli.settings.defaults").with_sources(message, args, given)
        _complain(parser.one_line(message))
        return _TRANSIENT if isinstance(error, TransientError) else _REFUSED
    except OSError as error:
        if _is_nowhere():
            _complain("the current folder is gone; change to one that is there")
            return 2
        if error.filename is None or error.errno not in _MENDABLE:
            raise
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
        reason = f"{path}: cannot be used ({error.strerror}); name another place, or run this as a user who may use it"
        _complain(parser.one_line(reason))
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        _complain(
            f"{package} is not installed, which this command needs: pip install 'perseus-dist[{_EXTRAS[package]}]'"
        )
        return 2
    return code


def _is_nowhere() -> bool:
    """Whether the current folder has been removed, so that no relative path leads anywhere."""
    try:
        os.getcwd()  # noqa: PTH109 - nothing else is wanted of it
    except FileNotFoundError:
        return True
    return False


def _complain(line: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        print(f"perseus-dist: {line}", file=sys.stderr, flush=True)
