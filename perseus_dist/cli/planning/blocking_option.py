"""The option ``--blocking-power-w``: what a GPU draws while it waits for a peer."""

import argparse

from perseus_dist.cli.number_options import real
from perseus_dist.errors import PlanningError
from perseus_dist.planning.profile.power_bounds import MAX_GPU_POWER_W, MIN_GPU_POWER_W
from perseus_dist.units import uw_from_w


def add_blocking_argument(
    parser: argparse.ArgumentParser, *, default_w: float | None = None, each: str = "pp_rank"
) -> None:
    """Add the option; it must be given unless there is a default. ``each`` names what several values belong to."""
    default = None if default_w is None else (default_w,)
    parser.add_argument(
        "--blocking-power-w",
        type=_powers_w,
        required=default is None,
        default=default,
        metavar="W",
        help=f"power of ONE GPU that waits for a peer, in watts: one number, or one for each {each} as in 83.6,83.6,80"
        + ("" if default_w is None else f" (default: {default_w:g})"),
    )


def blocking_uw_from_args(args: argparse.Namespace, num_ranks: int, *, each: str = "pp_rank") -> tuple[int, ...]:
    """(num_ranks) [uW] blocking power of one GPU of each pp_rank.

    Raises:
        PlanningError: There are neither one nor ``num_ranks`` values.
    """
    powers_w: tuple[float, ...] = args.blocking_power_w
    if len(powers_w) not in (1, num_ranks):
        raise PlanningError(
            f"--blocking-power-w: saw {len(powers_w)} values, expected 1 or {num_ranks}; give one for all, or one for "
            f"each {each}"
        )
    powers_uw = [int(power) for power in uw_from_w(powers_w)]
    return tuple(powers_uw * num_ranks if len(powers_uw) == 1 else powers_uw)


def _powers_w(text: str) -> tuple[float, ...]:
    return tuple(_power_w(part) for part in text.split(","))


def _power_w(text: str) -> float:
    power_w = real(0, MAX_GPU_POWER_W, f"watts from 0 to {MAX_GPU_POWER_W:g}, such as 83.64 or 83.64,83.64,80")(text)
    if 0 < power_w < MIN_GPU_POWER_W:
        raise argparse.ArgumentTypeError(f"saw {text!r}, expected 0, or watts from {MIN_GPU_POWER_W:g} on")
    return power_w
