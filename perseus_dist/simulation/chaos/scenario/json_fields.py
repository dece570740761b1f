"""Reads the fields of a JSON object one by one; whatever does not fit is refused with what was seen and expected."""

import json
from collections.abc import Collection
from typing import Any

from perseus_dist.simulation.chaos.errors import ScenarioError

_MAX_SHOWN = 60
REQUIRED: Any = object()
"""The default of a field that has none."""


class JsonFields:
    """One JSON object; each field is taken once, and none may be left.

    Args:
        fields: The object.
        where: Names it in messages.
    """

    def __init__(self, fields: object, where: str) -> None:
        if not isinstance(fields, dict):
            raise ScenarioError(f"{where}: saw {shown(fields)}, expected a JSON object; write {{...}}")
        self._left: dict[str, Any] = dict(fields)
        self._where = where
        self._known: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def whole(self, name: str, low: int, high: int, default: Any = REQUIRED) -> Any:
        """An integer from ``low`` to ``high``, or the default (which may be None, and is then allowed in the file)."""
        value = self._take(name, default)
        if value is None and default is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._refusal(name, value, f"a whole number from {low} to {high}", default)
        return value

    def real(self, name: str, low: float, high: float, default: Any = REQUIRED) -> Any:
        """A number from ``low`` to ``high``, or the default, as ``whole`` has it."""
        value = self._take(name, default)
        if value is None and default is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:  # which NaN is not, either
            raise self._refusal(name, value, f"a number from {low:g} to {high:g}", default)
        return float(value)

    def switch(self, name: str) -> bool:
        """True or false; null is false."""
        value = self._take(name, REQUIRED)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self._refusal(name, value, "true or false", REQUIRED)
        return value

    def text(
        self, name: str, default: Any = REQUIRED, *, among: Collection[str] = (), each_among: Collection[str] = ()
    ) -> str:
        """A string, where ``among`` is given one of those, where ``each_among`` is given some, with commas between."""
        value = self._take(name, default)
        known = among or each_among
        if isinstance(value, str) and value:
            said = value.split(",") if each_among else [value]
            if not known or all(one in known for one in said):
                return value
        raise self._refusal(name, value, ", ".join(map(json.dumps, known)) or "a text", default)

    def any(self, name: str, default: Any = REQUIRED) -> Any:
        """Value of the field, of any type."""
        return self._take(name, default)

    def end(self) -> None:
        """Nothing more is expected.

        Raises:
            ScenarioError: Something is left.
        """
        for name in self._left:
            raise ScenarioError(
                f"{self._where}: saw the field {json.dumps(name)}, expected {', '.join(self._known)} or fewer; "
                "mend its name, or leave it out"
            )

    def _take(self, name: str, default: Any) -> Any:
        self._known.append(name)
        if name in self._left:
            return self._left.pop(name)
        if default is REQUIRED:
            raise ScenarioError(f"{self._where}: saw no {json.dumps(name)}, expected one; add it")
        return default

    def _refusal(self, name: str, value: object, expected: str, default: Any) -> ScenarioError:
        remedy = "mend it" if default is REQUIRED else "mend it, or leave it out"
        expected += " or null" if default is None else ""
        return ScenarioError(f"{self._where}: {name}: saw {shown(value)}, expected {expected}; {remedy}")


def shown(value: object) -> str:
    """A value of a file in a message."""
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
