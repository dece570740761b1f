"""Runs a training script as Python would, with ``--enable-perseus`` known to Megatron's parser.

    torchrun --nproc_per_node 4 -m perseus_dist.megatron pretrain_gpt.py --enable-perseus ...

Whatever goes wrong with Perseus here, the script runs.
"""

import sys

from perseus_dist.training.runner import TARGET, run_program

_RUNNER = "perseus_dist.megatron"


def main(arguments: list[str]) -> int:
    """Run the training script or module. Arguments and result as ``run_program`` has them."""
    return run_program(arguments, runner=_RUNNER, usage=f"usage: python -m {_RUNNER} {TARGET}", activate=_activate)


def _activate() -> None:
    from perseus_dist.megatron.activation import activate

    activate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
