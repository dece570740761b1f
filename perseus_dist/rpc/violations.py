"""Violations in a received message, field by field, and the checks that find them."""

from collections.abc import Collection
from typing import NamedTuple

from perseus_dist.errors import PerseusError

MAX_VIOLATIONS = 8
"""How many are listed: a hostile message may have millions, and gRPC carries 8 KiB of them."""

_SHOWN_CHARACTERS = 40


class FieldViolation(NamedTuple):
    """One field: its path as in ``telemetry.iterations[3].time_s``, what was seen and what was expected."""

    field: str
    description: str


class InvalidMessageError(PerseusError):
    """A message that breaks the contract of ``protos/``: the stream or call is answered with INVALID_ARGUMENT."""

    def __init__(self, violations: Collection[FieldViolation]) -> None:
        super().__init__(
            "; ".join(f"{field}: {description}" if field else description for field, description in violations)
        )
        self.violations = tuple(violations)


class Checker:
    """Collects violations. Each check gives the value back, right or wrong, to stand where the value is used."""

    __slots__ = ("_violations",)

    def __init__(self) -> None:
        self._violations: list[FieldViolation] = []

    def integer(self, field: str, value: int, low: int, high: int) -> int:
        """An integer within bounds, both inclusive."""
        if not low <= value <= high:
            self.violated(field, value, f"an integer from {low} to {high}")
        return value

    def number(self, field: str, value: float, high: float, low: float = 0.0) -> float:
        """A number within bounds, both inclusive; NaN and infinities are outside of any."""
        if not low <= value <= high:
            self.violated(field, value, f"a finite number from {low:g} to {high:g}")
        return value

    def positive(self, field: str, value: float, high: float) -> float:
        """A number above 0 and not above ``high``."""
        if not 0.0 < value <= high:
            self.violated(field, value, f"a finite number above 0 and up to {high:g}")
        return value

    def text(self, field: str, value: str, max_length: int) -> str:
        """One printable line, which may be empty: it will be shown on terminals."""
        if len(value) > max_length or not value.isprintable():
            self.violated(field, value, f"at most {max_length} characters, all printable")
        return value

    def choice(self, field: str, value: str, choices: Collection[str]) -> str:
        """One of a few words."""
        if value not in choices:
            self.violated(field, value, f"one of {', '.join(choices)}")
        return value

    def violated(self, field: str, seen: object, expected: str) -> None:
        """Note that a field is not what is expected of it."""
        if len(self._violations) < MAX_VIOLATIONS:
            shown = repr(seen)
            if len(shown) > _SHOWN_CHARACTERS:
                shown = f"{shown[:_SHOWN_CHARACTERS]}... ({len(shown)} characters)"
            self._violations.append(FieldViolation(field, f"{shown} was seen, expected {expected}"))

    def finish(self) -> None:
        """End the checks.

        Raises:
            InvalidMessageError: There were any.
        """
        if self._violations:
            raise InvalidMessageError(self._violations)
