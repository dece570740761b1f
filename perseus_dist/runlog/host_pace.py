"""``simulated-<rank>.json``: whether a rank's host kept up with its simulated GPU.

On simulated GPUs an instruction takes as long as its kernel or as the host's real work, whichever is longer. Where most
take as long as the host, measured times and energies say nothing of GPUs.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from perseus_dist.planning.output_file import replace_file
from perseus_dist.runlog.file_content import read_content
from perseus_dist.runlog.file_names import host_pace_file
from perseus_dist.runlog.json_fields import Fields, FieldsError, read_json


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPace:
    """Instructions of one rank that ran as kernels on its simulated GPU.

    Attributes:
        num_instructions: All of them.
        num_outlasting: Those whose kernel had ended before the host came to wait for it.
    """

    num_instructions: int
    num_outlasting: int

    @property
    def share(self) -> float:
        """The share whose kernel had ended first; 0 without any."""
        return self.num_outlasting / self.num_instructions if self.num_instructions else 0.0


def write_host_pace(folder: Path, rank: int, pace: HostPace) -> None:
    """Write a rank's file anew.

    Raises:
        OutputError: The folder is missing or cannot be written to.
    """
    document = {"num_instructions": pace.num_instructions, "num_outlasting": pace.num_outlasting}
    replace_file(folder / host_pace_file(rank), json.dumps(document).encode() + b"\n")


def read_host_pace(folder: Path, rank: int, notes: list[str]) -> HostPace | None:
    """Read a rank's file; None where there is none, and with a note where it cannot be understood."""
    path = folder / host_pace_file(rank)
    try:
        fields = Fields(read_json(read_content(path)))
        num_instructions = fields.whole("num_instructions")
        return HostPace(
            num_instructions=num_instructions, num_outlasting=fields.whole("num_outlasting", high=num_instructions)
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        notes.append(f"{path.name} is left out: {error.strerror}")
        return None
    except (ValueError, FieldsError) as error:
        notes.append(f"{path.name} is left out: {error}")
        return None
