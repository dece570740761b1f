"""A model of a GPU that makes the example profile. It is NOT a measurement of any GPU.

    python examples/gpu_model.py > examples/profiles/gpu_model_pp4.csv

A computation does a share of its work at the SM clock, and the rest at the speed of memory, which no SM clock changes:

    time(f)  = work * (compute * F_MAX / f + 1 - compute)
    power(f) = STATIC + DYNAMIC * (V(f) / V_MAX)^2 * f / F_MAX
    V(f)     = max(V_FLOOR, a line that rises to V_MAX at F_MAX)
    energy   = power * time

Above the clock where the voltage reaches its floor, a lower clock saves much; below it, static power takes back more
than is saved. So the least energy lies inside the range, as on real GPUs. Time and energy carry a little seeded noise.

The pipeline has 4 stages of one transformer. The first has a layer less, because it also embeds the tokens; the last
has the language model head, which makes it the heaviest.
"""

import random
import sys

CLOCKS_MHZ = range(1410, 840, -15)
F_MAX_MHZ = 1410
V_MAX, V_FLOOR, V_FLOOR_MHZ = 1.00, 0.72, 975  # volts, and the highest clock that runs at the floor
STATIC_W, DYNAMIC_W = 115.0, 265.0  # at the maximum clock: 380 W
BLOCKING_W = 80.0  # of a GPU that waits for a peer; not in the profile, for --blocking-power-w

FORWARD_S = 0.040  # of a stage with relative work 1
RELATIVE_WORK = (0.92, 1.00, 1.00, 1.16)  # of stages 0 to 3
INSTRUCTIONS = (("forward", 1.0, 0.78), ("backward", 2.0, 0.84))  # name, work in forwards, compute share

SEED = 2024
TIME_NOISE, ENERGY_NOISE = 0.0015, 0.002  # standard deviations, relative


def voltage(clock_mhz: int) -> float:
    """Volts at an SM clock."""
    slope = (V_MAX - V_FLOOR) / (F_MAX_MHZ - V_FLOOR_MHZ)
    return max(V_FLOOR, V_MAX - slope * (F_MAX_MHZ - clock_mhz))


def time_s(work_s: float, compute: float, clock_mhz: int) -> float:
    """Seconds that a computation takes which takes ``work_s`` at the maximum clock."""
    return work_s * (compute * F_MAX_MHZ / clock_mhz + 1 - compute)


def power_w(clock_mhz: int) -> float:
    """Watts that a GPU draws while it computes."""
    return STATIC_W + DYNAMIC_W * (voltage(clock_mhz) / V_MAX) ** 2 * clock_mhz / F_MAX_MHZ


def normal(rng: random.Random) -> float:
    """Nearly a standard normal variate, from arithmetic alone: the same on every platform."""
    return sum(rng.random() for _ in range(12)) - 6


def main() -> None:
    """Write the profile to standard output."""
    rng = random.Random(SEED)
    sys.stdout.write("stage,instruction,frequency,time,energy\n")
    for stage, relative_work in enumerate(RELATIVE_WORK):
        for clock_mhz in CLOCKS_MHZ:
            for instruction, forwards, compute in INSTRUCTIONS:
                exact_s = time_s(FORWARD_S * relative_work * forwards, compute, clock_mhz)
                measured_s = exact_s * (1 + TIME_NOISE * normal(rng))
                measured_j = power_w(clock_mhz) * measured_s * (1 + ENERGY_NOISE * normal(rng))
                sys.stdout.write(f"{stage},{instruction},{clock_mhz},{measured_s:.6f},{measured_j:.4f}\n")


if __name__ == "__main__":
    main()
