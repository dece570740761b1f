"""Numbers and states in words, for templates."""

import math
from datetime import UTC, datetime

from perseus_dist.messages.terms import Target

_ENERGIES = (("GJ", 1e9), ("MJ", 1e6), ("kJ", 1e3))
_SPANS = (("d", 86_400), ("h", 3600), ("min", 60))
_DIGITS = 4
_MINUS, _TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"

NOT_KNOWN = "\N{EN DASH}"


def seconds(time_s: float) -> str:
    """A time of four digits in s or ms; a dash where it is not known."""
    if not time_s:
        return NOT_KNOWN
    if abs(time_s) < 1:
        return f"{_digits(time_s * 1e3)} ms"
    return f"{_digits(time_s)} s"


def joules(energy_j: float, doubt_j: float = 0.0) -> str:
    """An energy, and by how much it may be more or less."""
    unit, size_j = next((one for one in _ENERGIES if abs(energy_j) >= one[1]), ("J", 1.0))
    doubt = f" ± {doubt_j / size_j:,.{1 if size_j == 1 else 2}f}" if doubt_j else ""
    return f"{energy_j / size_j:,.{1 if size_j == 1 else 2}f}{doubt} {unit}"


def percent(share: float) -> str:
    """A difference in percent with its sign, of a share of 1: ``+1.5 %`` for 0.015."""
    text = f"{100 * share:+.1f}"
    return f"{'0.0' if text in ('+0.0', '-0.0') else text.replace('-', _MINUS)} %"


def span(time_s: float) -> str:
    """A length of time in the unit that matters."""
    for unit, size_s in _SPANS:
        if time_s >= size_s:
            return f"{time_s / size_s:.0f} {unit}"
    return f"{max(0.0, time_s):.0f} s"


def clock_time(at_s: float) -> str:
    """An instant of the day in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S")


def iso_time(at_s: float) -> str:
    """An instant for machines."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def target_words(target: Target) -> str:
    """A target in a few words."""
    if target.deadline_s is not None:
        return f"{target.deadline_s:g} s"
    if target.slowdown is not None:
        return f"{target.slowdown:g} {_TIMES} baseline"
    return "as fast as baseline"


def _digits(value: float) -> str:
    whole = max(1, math.floor(math.log10(abs(value))) + 1) if value else 1
    return f"{value:,.{max(0, _DIGITS - whole)}f}"
