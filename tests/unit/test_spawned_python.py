"""Every Python that this package spawns gets ``-P``: modules in the current folder stand in for no installed ones."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import perseus_dist

PACKAGE = Path(perseus_dist.__file__).parent
SPAWNING = frozenset(
    {
        *("Popen", "run", "call", "check_call", "check_output", "create_subprocess_exec", "create_subprocess_shell"),
        *("posix_spawn", "posix_spawnp", "fork", "forkpty", "system", "popen", "get_context", "ProcessPoolExecutor"),
        *("execv", "execve", "execvp", "execvpe", "execl", "execle", "execlp", "execlpe"),
        *("spawnl", "spawnle", "spawnlp", "spawnlpe", "spawnv", "spawnve", "spawnvp", "spawnvpe"),
    }
)
MODULES = frozenset({"subprocess", "os", "asyncio", "pty", "multiprocessing"})
KNOWN_SPAWNS = {
    "agent/link/embedded_planner.py": 1,
    "boundaries/agent_process.py": 1,
    "cli/simulated/sim.py": 1,  # the user's command
    "deepspeed/rank_main.py": 1,  # the user's program
    "device/inspection/slurm.py": 1,  # scontrol
    "device/lease/clockd_process.py": 1,
    "device/lease/connectors.py": 1,
    "device/lease/detach.py": 1,  # a fork that goes on as it is
    "measure/proof/hook_cost.py": 1,
    "measure/proof/visible_devices.py": 1,
    "planner/worker/planning_worker.py": 1,
    "simulation/chaos/campaign.py": 2,  # multiprocessing: PYTHONSAFEPATH in the environment
    "simulation/frameworks/training_job.py": 1,
    "simulation/frameworks/training_run.py": 1,
    "simulation/megatron_on_cpu.py": 1,  # make
    "simulation/processes.py": 1,
    "simulation/wall_run.py": 1,
    "training/report_launcher.py": 2,
}


NAMES = tuple(sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")))


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text())


def trees() -> Iterator[tuple[str, ast.Module]]:
    for name in NAMES:
        yield name, tree_of(name)


def is_interpreter(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "executable" and ast.unparse(node) == "sys.executable"


def command_lines(tree: ast.Module) -> Iterator[list[ast.expr]]:
    """Sequences of words, and arguments of calls that spawn, which begin with this interpreter."""
    for node in ast.walk(tree):
        words: list[ast.expr] = []
        if isinstance(node, ast.List | ast.Tuple):
            words = node.elts
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "create_subprocess_exec":
            words = node.args
        if words and is_interpreter(words[0]):
            yield words


@pytest.mark.parametrize("name", NAMES)
def test_the_interpreter_is_followed_by_the_flag(name: str) -> None:
    for words in command_lines(tree_of(name)):
        assert isinstance(words[1], ast.Constant), ast.unparse(words[1])
        assert words[1].value == "-P", " ".join(map(ast.unparse, words))


def test_there_is_no_other_way_to_spawn() -> None:
    """A new one is to be looked at, and listed above."""
    found: dict[str, int] = {}
    for name, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            function = ast.unparse(node.func)
            module, _, called = function.rpartition(".")
            bare = not module and called in {"get_context", "ProcessPoolExecutor", "Popen", "create_subprocess_exec"}
            if called in SPAWNING and (module in MODULES or bare) and function != "asyncio.run":
                found[name] = found.get(name, 0) + 1
    assert found == KNOWN_SPAWNS


def test_every_process_that_this_package_starts_of_itself_is_among_them() -> None:
    commands = {
        name: len(lines) for name, tree in trees() if (lines := [ast.unparse(w[0]) for w in command_lines(tree)])
    }
    assert commands.keys() >= KNOWN_SPAWNS.keys() - {
        "cli/simulated/sim.py",
        "device/inspection/slurm.py",  # scontrol
        "device/lease/detach.py",
        "deepspeed/rank_main.py",
        "simulation/chaos/campaign.py",
        "simulation/frameworks/training_job.py",  # starts what training_run.as_started makes
        "simulation/megatron_on_cpu.py",  # make
    }
