"""Certificates that settings and options name, and when they expire."""

import argparse
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from perseus_dist.cli.settings.effective import Setting
from perseus_dist.messages.finding import Finding, Level

SOON_S = 14 * 86400.0
"""A certificate or token that expires within this time is a finding."""

_KEYS = ("tls-cert", "tls-ca", "tls-client-ca", "metrics-tls-cert")
_AUTHORITIES = ("tls-ca", "tls-client-ca")


def inspect_certificates(args: argparse.Namespace, settings: Iterable[Setting]) -> Iterator[Finding]:
    """Look at the certificates of the options of ``doctor``, and of those of planner and clients in settings.

    Files that this user may not read, which a service of another user may, are left out; so are options' files that
    cannot be used, which ``inspect_credentials`` finds.
    """
    named = {path: f"--{key}" for key in _KEYS if isinstance(path := getattr(args, key.replace("-", "_"), None), Path)}
    for setting in settings:
        if setting.key in _KEYS and isinstance(setting.value, Path):
            named.setdefault(setting.value, f"{setting.section}.{setting.key}")
    for path, name in named.items():
        try:
            data = path.read_bytes()
        except PermissionError:
            continue
        except OSError as error:
            if name.startswith("--"):
                continue
            what = f"{path}, that {name} names, cannot be read ({error.strerror})"
            yield Finding(level=Level.FAIL, subject="certificates", what=what, remedy="name a PEM file that is there")
            continue
        yield from _inspect(path, name, data)


def day_of(time_s: float) -> str:
    """The day of a time since the epoch [s], in UTC."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d")


def _inspect(path: Path, name: str, data: bytes) -> Iterator[Finding]:
    try:
        from cryptography import x509
    except ImportError:  # where a planner is served, and not on every node
        return
    try:
        ends = [one.not_valid_after_utc.timestamp() for one in x509.load_pem_x509_certificates(data)]
    except ValueError:
        if name.startswith("--"):
            return
        what = f"{path}, that {name} names, is no certificate"
        yield Finding(level=Level.FAIL, subject="certificates", what=what, remedy="name a file of certificates in PEM")
        return
    # A chain is good as long as all of it is, and authorities as long as one of them is: an older one may stay beside.
    first_s, end_s, now_s = min(ends), max(ends), time.time()
    if name.rpartition(".")[2].lstrip("-") not in _AUTHORITIES:
        end_s = first_s
    renew = "renew it; a planner reads it again by itself" if name.startswith("planner.") else "renew it"
    if end_s <= now_s:
        what = f"{path} {_ends(end_s, now_s)}"
        yield Finding(level=Level.FAIL, subject="certificates", what=what, remedy=renew)
    elif end_s <= now_s + SOON_S:
        what = f"{path} {_ends(end_s, now_s)}, in {(end_s - now_s) / 86400:.0f} days"
        yield Finding(level=Level.WARN, subject="certificates", what=what, remedy=renew)
    else:
        other = f"; another authority in it {_ends(first_s, now_s)}" if first_s <= now_s + SOON_S else ""
        what = f"{path} is valid until {day_of(end_s)}{other}"
        yield Finding(level=Level.OK, subject="certificates", what=what)


def _ends(end_s: float, now_s: float) -> str:
    return f"{'has expired' if end_s <= now_s else 'expires'} on {day_of(end_s)}"
