"""How Perseus comes into a process that trains with Megatron: runner, two lines, enabled environment."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from python_path import python_path
from readme import readme_command

from perseus_dist.simulation.frameworks.training_run import free_port
from perseus_dist.training.options import PerseusOptions

VERSION = "0.17.1"
MEGATRON = Path(os.environ.get("PERSEUS_TEST_MEGATRON", Path(__file__).parents[2] / "build" / "megatron")) / VERSION
ON_CPU = ("-m", "perseus_dist.simulation.megatron_on_cpu")
TWO_LINES = "import perseus_dist.megatron\nperseus_dist.megatron.install()\n"
LOOK = """\
import json, os, pathlib, sys
early = [name for name in ("megatron", "perseus_dist.megatron.activation", "perseus_dist.hooks") if name in sys.modules]
from megatron.core.pipeline_parallel import schedules
from megatron.training import training
from megatron.training.arguments import parse_args
namespace = parse_args()
from perseus_dist.megatron.requested import requested_options
options = requested_options()
pathlib.Path(f"found-{os.environ.get('RANK', '0')}.json").write_text(json.dumps({
    "options": options and options.to_text(),
    "early": early,
    "hooked": [hasattr(schedules.forward_step, "__wrapped__"), hasattr(training.train_step, "__wrapped__")],
}))
"""
IMPORT_CORE = "from megatron.core.pipeline_parallel import schedules\n"
LOOK_AT_CORE = """\
import json, pathlib
from perseus_dist.megatron.requested import requested_options
options = requested_options()
hooked = hasattr(schedules.forward_step, "__wrapped__")
pathlib.Path("found-0.json").write_text(json.dumps({"options": options and options.to_text(), "hooked": hooked}))
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment that sees what this one has installed, and an unpacked Megatron."""

    folder: Path
    work: Path

    @property
    def pth(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages" / "perseus_dist_megatron.pth"

    def python(self, *argv: str, **extra: str) -> "subprocess.CompletedProcess[str]":
        dropped = ("PERSEUS", "PYTEST", "RANK", "PYTHON")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return subprocess.run(
            [str(self.folder / "bin" / "python"), *argv],
            cwd=self.work,
            env={
                **kept,
                "PYTHONPATH": python_path(MEGATRON),
                "PYTHONWARNINGS": "ignore",
                "OMP_NUM_THREADS": "1",
                **extra,
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def perseus(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        return self.python("-P", "-m", "perseus_dist", *argv)

    def look(self, *argv: str, **extra: str) -> list[dict[str, Any]]:
        ran = self.python(*argv, **extra)
        assert ran.returncode == 0, ran.stderr
        found = sorted(self.work.glob("found-*.json"))
        documents = [json.loads(path.read_bytes()) for path in found]
        for path in found:
            path.unlink()
        return documents


@pytest.fixture
def environment(child_venv: Path, tmp_path: Path) -> Environment:
    made = Environment(child_venv, tmp_path / "work")
    made.work.mkdir()
    (made.work / "look.py").write_text(LOOK)
    return made


needs_megatron = pytest.mark.skipif(
    not MEGATRON.is_dir(),
    reason=f"no Megatron at {MEGATRON}; PERSEUS_TEST_MEGATRON names the folder of its versions",
)


@needs_megatron
def test_two_lines_of_a_script(environment: Environment) -> None:
    (environment.work / "train.py").write_text(TWO_LINES + LOOK)
    (found,) = environment.look(*ON_CPU, "train.py", "--perseus-job", "lines")
    assert found == {
        "options": PerseusOptions(job="lines").to_text(),
        "early": ["perseus_dist.megatron.activation"],
        "hooked": [True, True],
    }


@pytest.mark.stress
@needs_megatron
def test_a_program_with_its_own_loop_installs_late(environment: Environment) -> None:
    installs = "from perseus_dist.training.options import PerseusOptions\n"
    installs += TWO_LINES.replace("()", "(PerseusOptions(job='late'))")
    (environment.work / "train.py").write_text(IMPORT_CORE + installs + LOOK_AT_CORE)
    (found,) = environment.look(*ON_CPU, "train.py")
    assert found == {"options": PerseusOptions(job="late").to_text(), "hooked": True}


@pytest.mark.stress
@needs_megatron
def test_the_runner_disabled(environment: Environment) -> None:
    (environment.work / "train.py").write_text(IMPORT_CORE + LOOK_AT_CORE)
    runner = (*ON_CPU, "-m", "perseus_dist.megatron", "train.py")
    assert environment.look(*runner) == [{"options": None, "hooked": True}]
    assert environment.look(*runner, PERSEUS_DISABLE="1") == [{"options": None, "hooked": False}]


@needs_megatron
def test_the_readmes_command(environment: Environment) -> None:
    """On the CPU and with one rank, which megatron_on_cpu and --nproc_per_node say; the rest is as it stands there."""
    torchrun, *words = readme_command("torchrun ", script="pretrain_gpt.py", own="look.py")
    assert torchrun == "torchrun"
    number, module = words.index("--nproc_per_node") + 1, words.index("-m")
    words[number:module] = ["1", "--master_port", str(free_port()), *words[number + 1 : module], *ON_CPU]
    (found,) = environment.look("-m", "torch.distributed.run", *words)
    assert found == {
        "options": PerseusOptions().to_text(),
        "early": ["perseus_dist.megatron.activation"],
        "hooked": [True, True],
    }


@needs_megatron
def test_an_enabled_environment(environment: Environment) -> None:
    """A rank of torchrun's, and the processes in it that import no Megatron."""
    enabled = environment.perseus("enable", "megatron")
    assert enabled.stdout.splitlines() == [
        f"Wrote {environment.pth}: Megatron's scripts know --enable-perseus in this environment.",
        "Undo it with: perseus-dist disable megatron",
    ]
    modules = "import sys; print([name for name in sys.modules if name.startswith(('perseus', 'megatron', 'torch'))])"
    assert environment.python("-c", modules).stdout == "[]\n"
    torchrun = ("-m", "torch.distributed.run", "--nproc_per_node", "1", "--master_port", str(free_port()), *ON_CPU)
    (found,) = environment.look(*torchrun, "look.py", "--perseus-job", "enabled")
    assert found == {"options": PerseusOptions(job="enabled").to_text(), "early": [], "hooked": [True, True]}
    disabled = environment.perseus("disable", "megatron")
    assert disabled.stdout == f"Removed {environment.pth}.\n"
    assert not environment.pth.exists()
    assert environment.perseus("disable", "megatron").stdout == f"Nothing to undo in {environment.pth.parent}.\n"


def test_megatron_has_no_launcher_to_wrap(environment: Environment) -> None:
    for command in ("enable", "disable"):
        refused = environment.perseus(command, "megatron", "--shim", str(environment.folder / "bin"))
        assert refused.returncode == 2
        (line,) = refused.stderr.splitlines()
        assert "--shim wraps a framework's launcher, and megatron has none" in line
        assert "torchrun -m perseus_dist.megatron SCRIPT" in line


def test_both_frameworks_in_one_environment(environment: Environment) -> None:
    for framework in ("deepspeed", "megatron"):
        assert environment.perseus("enable", framework).returncode == 0
    waiting = "import sys; print([type(finder).__name__ for finder in sys.meta_path].count('PerseusStart'))"
    assert environment.python("-c", waiting).stdout == "2\n"
    environment.perseus("disable", "deepspeed")
    assert environment.python("-c", waiting).stdout == "1\n"
