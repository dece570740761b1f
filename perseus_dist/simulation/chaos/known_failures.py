"""Seeds that are known to break invariants: what a gate leaves aside, so that it sees what is new.

A file is one JSON object: by seed, the names of the invariants that it breaks, as in ``{"7": ["settled_time"]}``.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from perseus_dist.json_text import unique_keys
from perseus_dist.number_text import read_whole
from perseus_dist.planning.input_file import InputFileError, read_input
from perseus_dist.simulation.chaos.errors import ScenarioError
from perseus_dist.simulation.chaos.invariants.every import INVARIANT_NAMES
from perseus_dist.simulation.chaos.scenario.json_fields import shown
from perseus_dist.simulation.chaos.trial import CRASH, Trial

KnownFailures = Mapping[int, frozenset[str]]

_NAMES = frozenset({*INVARIANT_NAMES, CRASH})


def read_known_failures(path: str | os.PathLike[str]) -> KnownFailures:
    """Read a file.

    Raises:
        ScenarioError: It cannot be read, or is not one.
    """
    name = os.fspath(path)
    try:
        by_seed = json.loads(read_input(path), object_pairs_hook=unique_keys)
    except InputFileError as error:
        raise ScenarioError(f"{error}; name a file of known failures") from None
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"{name}: expected one JSON object ({error}); mend it") from None
    if not isinstance(by_seed, dict):
        raise ScenarioError(f'{name}: saw {shown(by_seed)}, expected an object as in {{"7": ["settled_time"]}}')
    return {_seed(name, seed): _names(name, seed, names) for seed, names in by_seed.items()}


def format_known_failures(trials: Iterable[Trial]) -> str:
    """A file that says what these trials broke, a seed a line; the inverse of ``read_known_failures``."""
    failing = sorted((trial.seed, sorted({one.name for one in trial.broken})) for trial in trials if trial.broken)
    lines = [f"{json.dumps(str(seed))}: {json.dumps(names)}" for seed, names in failing]
    return "{\n" + ",\n".join(lines) + "\n}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Failures of trials beside the known ones.

    Attributes:
        new: By seed, broken invariants that were not known.
        mended: By seed, known ones that hold now.
    """

    new: KnownFailures
    mended: KnownFailures

    def text(self) -> str:
        """For a terminal, a line for each seed."""
        lines = [f"seed {seed} newly breaks {', '.join(sorted(names))}" for seed, names in self.new.items()]
        lines += [
            f"seed {seed} no longer breaks {', '.join(sorted(names))}: take it from the file"
            for seed, names in self.mended.items()
        ]
        return "\n".join(lines) or "every seed does what is known of it"


def compare(trials: Collection[Trial], known: KnownFailures) -> Comparison:
    """Compare trials with what is known of their seeds; of other seeds nothing is said."""
    new, mended = {}, {}
    for trial in sorted(trials, key=lambda one: one.seed):
        broken, expected = frozenset(one.name for one in trial.broken), known.get(trial.seed, frozenset())
        if broken - expected:
            new[trial.seed] = broken - expected
        if expected - broken:
            mended[trial.seed] = expected - broken
    return Comparison(new=new, mended=mended)


def _seed(source: str, text: str) -> int:
    try:
        return read_whole(text, 0, 10**18 - 1)
    except ValueError:
        raise ScenarioError(
            f"{source}: saw the seed {shown(text)}, expected a whole number in quotes; mend it"
        ) from None


def _names(source: str, seed: str, names: object) -> frozenset[str]:
    if not isinstance(names, list) or not names or not _NAMES.issuperset(map(str, names)):
        raise ScenarioError(
            f"{source}: seed {seed}: saw {shown(names)}, expected a list of {', '.join(sorted(_NAMES))}; mend it"
        )
    return frozenset(names)
