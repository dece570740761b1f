"""Credentials for calls to planners, files of TLS and a token, as every command that calls one would use them."""

import argparse
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from perseus_dist.cli.jobs.planner_client import client_tls, token_path
from perseus_dist.errors import PerseusError
from perseus_dist.messages.finding import Finding, Level
from perseus_dist.rpc.connection import check_pem, read_token


class CredentialsError(PerseusError):
    """A file of TLS or of a token that the command line names and that cannot be read."""


def inspect_credentials(args: argparse.Namespace) -> Iterator[Finding]:
    """A failure of each that cannot be used, planners cannot be called then; a warning of each that others may read."""
    yield from _refused("certificates", "name PEM files that fit", lambda: _check_tls(args))
    yield from _refused("token", "name a readable file with --token-file", lambda: _check_token(args))
    for subject, path in (("certificates", args.tls_key), ("token", token_path(args))):
        if path is not None and _may_others_read(path):
            what = f"{path}: every user of this node may read it, and act as its owner"
            yield Finding(level=Level.WARN, subject=subject, what=what, remedy=f"chmod o= {path}")


def check_named_files(args: argparse.Namespace) -> None:
    """Refuse files of TLS and of a token on a command line that names no planner, where they cannot be read.

    Where there is a planner, or settings name them, they are findings.

    Raises:
        CredentialsError: The first of them.
    """
    if args.planner is not None:
        return
    set_elsewhere = {setting.dest for setting in getattr(args, "settings", ()) if setting.value is not None}
    for name in ("token_file", "tls_ca", "tls_cert", "tls_key"):
        path = getattr(args, name)
        if path is None or name in set_elsewhere:
            continue
        try:
            Path(path).open("rb").close()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            option = f"--{name.replace('_', '-')}"
            raise CredentialsError(f"{option} {path}: cannot be read ({reason}); name a file that is there") from None


def _check_tls(args: argparse.Namespace) -> None:
    if (tls := client_tls(args)) is not None:
        check_pem(tls)


def _check_token(args: argparse.Namespace) -> None:
    if (path := token_path(args)) is not None:
        read_token(path)


def _may_others_read(path: Path) -> bool:
    """Whether the file's mode lets them; folders on the way there may not."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:  # of which there is a failure already
        return False


def _refused(subject: str, remedy: str, check: Callable[[], None]) -> Iterator[Finding]:
    try:
        check()
    except PerseusError as error:
        what, _, told = str(error).partition("; ")
        yield Finding(level=Level.FAIL, subject=subject, what=what, remedy=told or remedy)
