"""Whether two runs have the same losses, bit by bit: a file of JSON lines each, ``{"step": 3, "loss": 5.4321}``."""

import struct
from pathlib import Path

from perseus_dist.errors import PerseusError
from perseus_dist.planning.input_file import InputFileError, read_input
from perseus_dist.runlog.json_fields import Fields, FieldsError, read_json


class LossesError(PerseusError):
    """Files of losses that cannot be read or do not belong together."""


def losses_equal(path: Path, reference: Path) -> bool:
    """Compare every step.

    Args:
        path: Of the one run.
        reference: Of the other.

    Raises:
        LossesError: A file holds no losses, or the two are of different steps.
    """
    ours, theirs = read_losses(path), read_losses(reference)
    if ours.keys() != theirs.keys():
        raise LossesError(
            f"{path} has {_steps(ours)} and {reference} {_steps(theirs)}; expected the same steps, so train both alike"
        )
    return ours == theirs


def read_losses(path: Path) -> dict[int, bytes]:
    """The bits of each step's loss; a step that was trained twice counts as it was the last time.

    Raises:
        LossesError: The file cannot be read, or a line is not as expected.
    """
    try:
        lines = read_input(path).decode().splitlines()
    except InputFileError as error:
        raise LossesError(f"{error}; name a file of losses") from None
    except UnicodeDecodeError:
        raise LossesError(f'{path}: not text; expected lines such as {{"step": 3, "loss": 5.4321}}') from None
    losses = {}
    for number, line in enumerate(lines, start=1):
        try:
            document = read_json(line)
            step = Fields(document).whole("step")
            losses[step] = struct.pack("<d", float(document["loss"]))  # a number, or the text that Python writes for it
        except (ValueError, TypeError, KeyError, OverflowError, FieldsError):
            raise LossesError(
                f'{path}:{number}: saw {line[:60]!r}, expected a line such as {{"step": 3, "loss": 5.4321}}'
            ) from None
    if not losses:
        raise LossesError(f"{path}: no losses in it; name the file of a run that has trained")
    return losses


def _steps(losses: dict[int, bytes]) -> str:
    return f"{len(losses)} steps from {min(losses)} to {max(losses)}"
