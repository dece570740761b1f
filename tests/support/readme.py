"""Commands of README.md, for tests that run them as they stand there."""

import re
import shlex
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def readme_command(begin: str, *, script: str, own: str, options: tuple[str, ...] = ()) -> list[str]:
    """The words of the one command in README.md that begins so, with a test's script in place of the user's.

    Args:
        begin: Of the command.
        script: The user's, which is in the command.
        own: The test's.
        options: Of the launcher, right before the script: what fits the test's machine.
    """
    blocks = re.findall(r"^```sh\n(.*?)^```$", README.read_text(), flags=re.DOTALL | re.MULTILINE)
    (command,) = (line for block in blocks for line in block.splitlines() if line.startswith(begin))
    words = shlex.split(command)
    place = words.index(script)
    return [*words[:place], *options, own, *words[place + 1 :]]
