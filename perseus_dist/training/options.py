"""Options of Perseus in training: on the launcher's command line, or in the framework's configuration."""

import argparse
import base64
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from perseus_dist.errors import PerseusError
from perseus_dist.training.option_values import OPTIONS


class OptionError(PerseusError):
    """An option that cannot be served: an unknown name, a value of the wrong kind, a file that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerseusOptions:
    """Requested options; None where one is not given. Values are checked and normalised, paths absolute.

    Attributes:
        planner: ``HOST:PORT``; without it a planner starts with rank 0 and ends with the job.
        profile: CSV of an earlier run, which spares the sweep.
        target: ``t_min``, ``slowdown=1.05`` or ``deadline_s=2.5``.
        report: Folder for the savings report.
        cache: Folder for the profile and the plans of an embedded planner, or ``off``.
        share: Where other nodes reach an embedded planner: ``HOST`` or ``HOST:PORT``, or ``off``.
        job: The job's name at the planner; made by rank 0 otherwise.
        token_file: File with the job's token at the planner.
        control: How clocks are set: ``auto``, ``clockd``, ``zeusd``, ``direct`` or ``observe``.
        stragglers: Whether the job's own planner has pipelines wait for stragglers: ``act``, or ``show``.
        granularity: What has a clock of its own where instructions cannot be seen: ``phase`` or ``rank``.
        tls_ca, tls_cert, tls_key: Files for TLS towards the planner.
    """

    planner: str | None = None
    profile: str | None = None
    target: str | None = None
    report: str | None = None
    cache: str | None = None
    share: str | None = None
    job: str | None = None
    token_file: str | None = None
    control: str | None = None
    stragglers: str | None = None
    granularity: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    def over(self, other: "PerseusOptions") -> "PerseusOptions":
        """These options, and the other's where these are silent."""
        return PerseusOptions(**{**_said(other), **_said(self)})

    def to_text(self) -> str:
        """One word for a command line: URL-safe base64, which no shell and no launcher takes apart."""
        return base64.urlsafe_b64encode(json.dumps(_said(self)).encode()).decode()

    @classmethod
    def from_text(cls, text: str) -> "PerseusOptions":
        """The inverse of ``to_text``.

        Raises:
            OptionError: The text is none of ours, or of another version.
        """
        try:
            said = json.loads(base64.urlsafe_b64decode(text))
            return cls(**said)
        except (ValueError, TypeError) as error:
            raise OptionError(
                f"options {text[:80]!r} cannot be read ({error}); install the same perseus-dist on every node"
            ) from None


def add_options(
    parser: argparse.ArgumentParser, *, flag: str = "--perseus", action: Callable[..., argparse.Action] | None = None
) -> None:
    """Add ``--perseus`` and its options, spelled with hyphens or underscores.

    Nothing stands in the namespace for an option that was not given.

    Args:
        parser: Theirs.
        flag: What it is called there, to ask for Perseus and nothing in particular.
        action: Makes what takes values in the place of the namespace; the flag's own are none.
    """
    group = parser.add_argument_group(
        "perseus", f"Energy-optimal GPU clocks. One of these options implies {flag}; underscores do for hyphens."
    )
    asks: dict[str, Any] = {"dest": "perseus", "help": "run the job under Perseus's clocks"}
    asks |= {"action": "store_true"} if action is None else {"action": action, "nargs": 0}
    _add_spellings(group, flag, f"--{flag[2:].replace('-', '_')}", **asks)
    for name, option in OPTIONS.items():
        takes: dict[str, Any] = {"dest": f"perseus_{name}", "metavar": option.metavar, "help": option.help}
        takes |= {} if action is None else {"action": action}
        _add_spellings(group, _flag(name), f"--perseus_{name}", f"--perseus-{name}", **takes)


def is_asked_for(namespace: argparse.Namespace) -> bool:
    """Whether ``--perseus`` or one of its options was given."""
    return any(name in namespace for name in ("perseus", *(f"perseus_{name}" for name in OPTIONS)))


def is_option(argument: str, *, flag: str = "--perseus") -> bool:
    """Whether a word of a command line is one of ``add_options``, with or without its value."""
    return argument.partition("=")[0].replace("_", "-") in (flag, *map(_flag, OPTIONS))


def options_from_namespace(namespace: argparse.Namespace) -> PerseusOptions:
    """Options of a command line that ``add_options`` has parsed.

    Files must be there: better no start than a job that trains for a week without its profile.

    Raises:
        OptionError: A value cannot be used.
    """
    given = {name: getattr(namespace, f"perseus_{name}", None) for name in OPTIONS}
    said = {name: _checked(value, name, _flag(name)) for name, value in given.items() if value is not None}
    for name in ("profile", "token_file", "tls_ca", "tls_cert", "tls_key"):
        if name in said and not _is_readable_file(said[name]):
            raise OptionError(f"{_flag(name)} {said[name]}: no file that can be read is there")
    return PerseusOptions(**said)


def check_profile(options: PerseusOptions) -> None:
    """Read the profile, where one is named: better no start than hours of measuring that it was to spare.

    Raises:
        OptionError: It is no profile CSV.
    """
    if options.profile is None:
        return
    from perseus_dist.planning.profile.profile_csv import read_rows

    try:
        read_rows(options.profile)
    except PerseusError as error:
        raise OptionError(f"{_flag('profile')} {error}") from None


def options_from_environment() -> PerseusOptions:
    """Options of the environment: ``PERSEUS_`` and an option's name in capitals, as in ``PERSEUS_REPORT``.

    Raises:
        OptionError: A value cannot be used.
    """
    said = {name: os.environ.get(f"PERSEUS_{name.upper()}") for name in OPTIONS}
    return PerseusOptions(**{name: _checked(v, name, f"PERSEUS_{name.upper()}") for name, v in said.items() if v})


def options_from_block(block: Mapping[str, object]) -> PerseusOptions | None:
    """Options of the ``perseus`` block of a framework's configuration.

    Args:
        block: Keys are the options' names, values their text; ``enabled`` is true or false.

    Returns:
        None where ``enabled`` is false.

    Raises:
        OptionError: A key is unknown, or a value cannot be used.
    """
    if not isinstance(block, Mapping):
        raise OptionError(f'"perseus": {block!r} in the configuration: expected a block such as {{"enabled": true}}')
    unknown = [str(name) for name in block if name != "enabled" and name not in OPTIONS]
    if unknown:
        raise OptionError(
            f"perseus.{unknown[0]} in the configuration is no option; there are enabled, {', '.join(OPTIONS)}"
        )
    enabled = block.get("enabled", True)
    if not isinstance(enabled, bool):
        raise OptionError(f"perseus.enabled in the configuration is {enabled!r}: expected true or false")
    if not enabled:
        return None
    return PerseusOptions(
        **{
            name: _checked(value, name, f"perseus.{name} in the configuration")
            for name, value in block.items()
            if name != "enabled" and value is not None
        }
    )


def _add_spellings(group: Any, flag: str, *others: str, **option: Any) -> None:
    """Of which ``--help`` shows one."""
    group.add_argument(flag, default=argparse.SUPPRESS, **option)
    for spelling in {*others} - {flag}:
        group.add_argument(spelling, default=argparse.SUPPRESS, **{**option, "help": argparse.SUPPRESS})


def _flag(name: str) -> str:
    return f"--perseus-{name.replace('_', '-')}"


def _said(options: PerseusOptions) -> dict[str, str]:
    return {name: value for name, value in asdict(options).items() if value is not None}


def _checked(value: object, name: str, source: str) -> str:
    if not isinstance(value, str):
        raise OptionError(f"{source} is {value!r}: expected {OPTIONS[name].expected}, in quotes")
    normalised = OPTIONS[name].normalise(value)
    if normalised is None:
        raise OptionError(f"{source} is {value!r}: expected {OPTIONS[name].expected}")
    return normalised


def _is_readable_file(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.R_OK)  # noqa: PTH113
