"""Intervals of percentages in words: both ends, or one number where both round to the same."""


def interval_text(low_percent: float, high_percent: float, decimals: int = 1) -> str:
    """An interval as ``8.0 to 9.5``, and as ``about 9.5`` where its rounded ends are equal.

    Args:
        low_percent: Lower end [%].
        high_percent: Upper end [%].
        decimals: Of each end.
    """
    low, high = f"{low_percent:z.{decimals}f}", f"{high_percent:z.{decimals}f}"
    return f"about {low}" if low == high else f"{low} to {high}"
