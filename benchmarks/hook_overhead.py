"""What a call of the trainer's hook costs, in host order and in device order: median and 99th percentile.

``python benchmarks/hook_overhead.py`` measures device order on a simulated GPU in virtual time, so that the simulation
does not run beside the calls; ``--gpu`` on the default stream of a real GPU instead. ``perseus-dist measure`` measures
the same on the stream of a workload. The first row is what a call costs on top where the agent has gone to sleep, which
it does after a second without boundaries.
"""

import argparse
from collections.abc import Iterable
from contextlib import ExitStack

from perseus_dist.measure.proof.cuda_device import make_context
from perseus_dist.measure.proof.hook_cost import HookCost, measure_doorbell, measure_hook
from perseus_dist.simulator.machine import SimulatedMachine, load_nvml

_NUM_ITERATIONS = 500
_INSTRUCTION_S = 0.005
_ITERATION_NS = 40_000_000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="device order on a real GPU instead of a simulated one")
    args = parser.parse_args()
    print("| order | call | calls | median [us] | p99 [us] | worst [us] | within the limits |")
    print("|---|---|---|---|---|---|---|")
    _print_rows([measure_doorbell(_NUM_ITERATIONS)])
    _print_rows(measure_hook(_NUM_ITERATIONS))
    with ExitStack() as stack:
        if args.gpu:
            make_context()
            _print_rows(measure_hook(_NUM_ITERATIONS, device_stream=lambda: 0))
            return
        machine = stack.enter_context(SimulatedMachine("a100", virtual=True))
        stack.enter_context(load_nvml(machine, cuda=True))
        make_context()
        stream = machine.gpu(0).stream
        handle = stream.handle
        costs = measure_hook(
            _NUM_ITERATIONS,
            device_stream=lambda: handle,
            work=lambda: stream.kernel("forward", _INSTRUCTION_S),
            wait=lambda: machine.advance(_ITERATION_NS),
        )
        _print_rows(costs, note=", simulated GPU")


def _print_rows(costs: Iterable[HookCost], note: str = "") -> None:
    for cost in costs:
        figures = f"{cost.cost_us.median:.1f} | {cost.cost_us.p99:.1f} | {cost.cost_us.worst:.0f}"
        verdict = "yes" if cost.is_within_limits else "NO"
        order = cost.order + note
        print(f"| {order} | `{cost.call}` | {cost.cost_us.num} | {figures} | {verdict} |")


if __name__ == "__main__":
    main()
