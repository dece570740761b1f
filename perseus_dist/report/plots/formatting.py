"""How times, energies and what is saved are written, in pictures, tables and pages alike."""


def time_text(time_s: float) -> str:
    """A time for people: seconds, or milliseconds below one tenth of a second."""
    return f"{time_s * 1e3:,.2f} ms" if abs(time_s) < 0.1 else f"{time_s:,.3f} s"


def energy_text(energy_j: float) -> str:
    """An energy for people: joules with thousands apart, one decimal below 1,000 J."""
    return f"{energy_j:,.1f} J" if abs(energy_j) < 1000 else f"{energy_j:,.0f} J"


def against_text(*, time_s: float, energy_j: float, reference_time_s: float, reference_energy_j: float) -> str:
    """Saving and slowdown against a reference. The two are never shown apart.

    The slowdown stands alone where one of the energies is 0, which is to say not known.
    """
    slowdown = f"slowdown {100 * (time_s / reference_time_s - 1):z.2f} %"
    if not (energy_j and reference_energy_j):
        return slowdown
    return f"saving {100 * (1 - energy_j / reference_energy_j):z.1f} %, {slowdown}"
