"""Runs a training script as Python would, with ``--enable-perseus`` known to Megatron's parser.

    torchrun --nproc_per_node 4 -m perseus_dist.megatron pretrain_gpt.py --enable-perseus ...

Whatever goes wrong with Perseus here, the script runs.
"""

import os
import sys

from perseus_dist.training.run_program import run_module, run_script

_USAGE = "usage: python -m perseus_dist.megatron {SCRIPT | -m MODULE} [ARGUMENT ...]"


def main(arguments: list[str]) -> int:
    """Run the training script or module.

    Args:
        arguments: A path of a script, or of a folder or ZIP file with a ``__main__``, or ``-m`` and a module's name;
            then its own arguments.

    Returns:
        0 when the program has come to its end; 2, after a line, where there is nothing to run.
    """
    is_module = arguments[:1] == ["-m"]
    target, *rest = arguments[is_module:] or [""]
    if target in ("-h", "--help") and not is_module:
        sys.stdout.write(f"{_USAGE}\n")
        return 0
    if not target or target.startswith("-"):
        sys.stderr.write(f"{_USAGE}\n")
        return 2
    if not is_module and not os.path.exists(target):  # noqa: PTH110 - pathlib would be imported for this alone
        sys.stderr.write(f"python -m perseus_dist.megatron: no script at {target}; {_USAGE}\n")
        return 2
    _activate()
    if not sys.flags.safe_path:
        del sys.path[0]  # where -m looked for this module
    sys.argv = [target, *rest]
    (run_module if is_module else run_script)(target)
    return 0


def _activate() -> None:
    try:
        from perseus_dist.megatron.activation import activate

        activate()
    except Exception as error:
        sys.stderr.write(f"training runs without Perseus: {error}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
