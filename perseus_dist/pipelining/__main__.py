"""Runs a training script as Python would, and puts its schedule of ``torch.distributed.pipelining`` under Perseus.

    torchrun --nproc_per_node 4 -m perseus_dist.pipelining train.py ...
    torchrun --nproc_per_node 4 -m perseus_dist.pipelining --perseus-report report -m torchtitan.train ...

Options stand before the script. Whatever goes wrong with Perseus here, except an option that cannot be served, the
script runs.
"""

import sys

from perseus_dist.training.runner import TARGET, run_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from perseus_dist.training.options import PerseusOptions

_RUNNER = "perseus_dist.pipelining"
_USAGE = f"usage: python -m {_RUNNER} [--perseus-OPTION VALUE ...] {TARGET}"


def main(arguments: list[str]) -> int:
    """Run the training script or module.

    Args:
        arguments: Options of Perseus, and then as ``run_program`` takes them.

    Returns:
        As ``run_program``; 2, after a line, for an option that cannot be served.
    """
    options: PerseusOptions | None = None
    num_words = _num_option_words(arguments)
    if num_words:
        from perseus_dist.errors import PerseusError

        try:
            options = _read(arguments[:num_words])
        except PerseusError as error:
            sys.stderr.write(f"python -m {_RUNNER}: {error}\n")
            return 2

    def activate() -> None:
        from perseus_dist.pipelining import activation

        activation.activate(options)

    return run_program(arguments[num_words:], runner=_RUNNER, usage=_USAGE, activate=activate)


def _num_option_words(arguments: list[str]) -> int:
    """How many words at the begin are options of Perseus and their values."""
    place = 0
    while place < len(arguments) and arguments[place].replace("_", "-").startswith("--perseus"):
        is_alone = "=" in arguments[place] or arguments[place] == "--perseus"
        place += 1 if is_alone else 2
    return min(place, len(arguments))


def _read(words: list[str]) -> "PerseusOptions":
    """The options.

    Raises:
        PerseusError: One of them is unknown, has no value, or one that cannot be used.
    """
    import argparse

    from perseus_dist.training.options import OptionError, add_options, check_profile, options_from_namespace

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_options(parser)
    try:
        namespace, unknown = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise OptionError(f"{error}; options stand before the script") from None
    if unknown:
        raise OptionError(f"{unknown[0]} is no option of Perseus; the docs list them with those for DeepSpeed")
    options = options_from_namespace(namespace)
    check_profile(options)
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
