"""Drawn argument lists of a framework's command line, none of which asks for Perseus."""

import random
import re
from collections.abc import Callable, Sequence

LIKE_OURS = (
    *(
        "--p",
        "--pe",
        "--per",
        "--pers",
        "--perse",
        "--perseu",
        "--enable",
        "--enable-",
        "--enable-p",
        "--enable-perseu",
    ),
    *(
        "-p",
        "-per",
        "-perseus",
        "--Perseus",
        "--PERSEUS-JOB",
        "---perseus",
        "--perseusx",
        "--perseus-",
        "--perseus--job",
    ),
    *("--perseus-seed", "--perseus_dir", "--perseus-jo", "--perseus job", "--no-perseus", "perseus", "perseus-job=x"),
    *(
        "--profile",
        "--report",
        "--target",
        "--planner",
        "--job",
        "--control",
        "--token-file",
        "--tls-ca",
        "--stragglers",
    ),
)
"""Words of a user's script, or of a mistaken launch, that come near our options."""

VALUES = (
    *(
        "train.py",
        "2",
        "0",
        "-1",
        "-0.5",
        "-1e-4",
        "1e-4",
        "-",
        "--",
        "---",
        "",
        " ",
        "a b",
        "-x y",
        "--x y",
        "ü",
        "-ü",
    ),
    *("run", "ds.json", "localhost:0", "slurm", "openmpi", "@file", "--=", "--=x", "-=", "=", "x=y", "%s", "%(prog)s"),
    *("train.zip", "folder", "None", "true", "\n", "$HOME", "1,2", "[1]", "A", "..."),
)

Chance = random.Random
_Words = Callable[[Chance], list[str]]


def options_in(usage: str) -> list[str]:
    """The option strings of a usage or help text."""
    return sorted(set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", usage)))


def draw(chance: Chance, options: Sequence[str], *, has_script: bool) -> list[str]:
    """One list: its options, mostly well written, then a script and its own arguments, or anything in any order.

    Args:
        chance: Where randomness comes from.
        options: The framework's own option strings.
        has_script: Whether a script stands behind the options, and takes all that follows.
    """
    kinds: tuple[_Words, ...] = (
        lambda chance: [_written(chance, chance.choice(options))],
        lambda chance: [chance.choice(options), chance.choice(VALUES)],
        lambda chance: [_written(chance, chance.choice(LIKE_OURS))],
        lambda chance: [chance.choice(LIKE_OURS), chance.choice(VALUES)],
        lambda chance: [chance.choice(VALUES)],
    )

    def some(most: int, weights: Sequence[int]) -> list[str]:
        return [word for _ in range(chance.randint(0, most)) for word in chance.choices(kinds, weights)[0](chance)]

    if not has_script:
        return some(6, chance.choice([(1, 1, 1, 1, 1), (6, 6, 1, 1, 1), (0, 0, 1, 1, 0)]))
    if chance.random() < 0.2:
        return some(6, (1, 1, 1, 1, 1))
    launcher = some(2, chance.choice([(1, 4, 0, 0, 0), (2, 2, 1, 1, 1)]))
    script = ["train.py"] if chance.random() < 0.9 else []
    return [*launcher, *script, *some(5, (1, 1, 3, 3, 1))]


def _written(chance: Chance, option: str) -> str:
    """An option as it is, abbreviated, with its value behind ``=``, or with the other sort of hyphens."""
    if chance.random() < 0.4:
        option = option[: chance.randint(min(3, len(option)), len(option))]
    if chance.random() < 0.15:
        option = option[:2] + option[2:].replace("-", "_") if "-" in option[2:] else option.replace("_", "-")
    return f"{option}={chance.choice(VALUES)}" if chance.random() < 0.4 else option
