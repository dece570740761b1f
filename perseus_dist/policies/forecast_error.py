"""The error of a signal's forecasts, where what came is known beside what was expected."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.tariff import Tariff


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastError:
    """Distance of forecasts from what came, each hour counting alike.

    Attributes:
        mean_kwh: Mean absolute error, per kWh.
        percent: The same, of the mean absolute value that came; 0 where that value is 0.
        hours: For which forecast and value are both known.
    """

    mean_kwh: float
    percent: float
    hours: float

    @property
    def text(self) -> str:
        """A clause for people."""
        mean = f"{self.mean_kwh:.4g} per kWh on average ({self.percent:.1f} %)"
        return f"forecasts off by {mean} in {self.hours:,.4g} hours"


def forecast_error(signal: Sequence[Piece] | Tariff | None, until: datetime | None = None) -> ForecastError | None:
    """The error of a signal's forecasts.

    Args:
        signal: From ``read_signal``.
        until: Pieces that end later do not count, as they have not come yet; None for all to count.

    Returns:
        None where no piece has both a forecast and an actual value.
    """
    if signal is None or isinstance(signal, Tariff):
        return None
    duration_s = error_s = value_s = 0.0
    for piece in signal:
        if piece.forecast is None or not piece.is_actual:
            continue
        if until is not None and piece.start + timedelta(seconds=piece.duration_s) > until:
            break
        duration_s += piece.duration_s
        error_s += piece.duration_s * abs(piece.value - piece.forecast)
        value_s += piece.duration_s * abs(piece.value)
    if not duration_s:
        return None
    return ForecastError(
        mean_kwh=error_s / duration_s,
        percent=100 * error_s / value_s if value_s else 0.0,
        hours=duration_s / 3600,
    )
