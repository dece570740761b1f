"""Tariffs of electricity in OpenEI's form: a rate for each period, and the period of each hour of a month.

Only what depends on the hour counts: of each period, rate and adjustment of the last tier, which is what one kWh more
costs a large user. Fixed charges and charges for peaks of power are the same at any pace, or not known here.
"""

import json
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

_HOURS = 24
_MONTHS = 12
_SATURDAY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """Rates by month, hour and kind of day.

    Attributes:
        name: Of the tariff.
        weekday, weekend: (12 months, 24 hours) of dollars per kWh.
    """

    name: str
    weekday: tuple[tuple[float, ...], ...]
    weekend: tuple[tuple[float, ...], ...]

    def rate(self, time: datetime) -> float:
        """Dollars per kWh at a time, whose offset from UTC is the tariff's."""
        months = self.weekend if time.weekday() >= _SATURDAY else self.weekday
        return months[time.month - 1][time.hour]

    def hours(self, start: datetime, duration_s: float) -> list[tuple[datetime, float, float]]:
        """From a start on, hour by hour.

        Returns:
            Start, duration [s] and rate of each hour; the first and the last may be parts of one.

        Raises:
            OverflowError: The end is beyond the calendar.
        """
        hours = []
        while duration_s > 0:
            next_hour = start.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
            taken_s = min(duration_s, (next_hour - start).total_seconds())
            hours.append((start, taken_s, self.rate(start)))
            start, duration_s = start + timedelta(seconds=taken_s), duration_s - taken_s
        return hours


def tariff_from_document(document: Any) -> Tariff:
    """The first tariff of an answer.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, IndexError: It is none.
    """
    item = document["items"][0]
    parts = [(period[-1]["rate"], period[-1].get("adj", 0.0)) for period in item["energyratestructure"]]
    if any(isinstance(part, bool) for of_period in parts for part in of_period):
        raise ValueError("saw a rate that is true or false in energyratestructure, expected a number")
    rates = [float(rate) + float(adjustment) for rate, adjustment in parts]
    if not all(0 <= rate < math.inf for rate in rates):
        raise ValueError("saw a rate that is no number or negative in energyratestructure")
    return Tariff(
        name=str(item["name"]),
        weekday=_schedule(item["energyweekdayschedule"], rates),
        weekend=_schedule(item["energyweekendschedule"], rates),
    )


def _schedule(schedule: Any, rates: list[float]) -> tuple[tuple[float, ...], ...]:
    months = json.loads(schedule) if isinstance(schedule, str) else schedule
    if len(months) != _MONTHS or any(len(hours) != _HOURS for hours in months):
        raise ValueError("saw another schedule, expected the periods of 24 hours of 12 months")
    if not all(type(period) is int and 0 <= period < len(rates) for hours in months for period in hours):
        raise ValueError(f"saw a period that is none of the {len(rates)} of energyratestructure")
    return tuple(tuple(rates[period] for period in hours) for hours in months)
