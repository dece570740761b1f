"""Values that hold arrays: equal and hashed by what they hold, in and behind all public names."""

import ast
import copy
import pickle
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import perseus_dist
from perseus_dist import Schedule
from perseus_dist.planning.value_equality import ValueEquality

ROOT = Path(__file__).resolve().parents[2]
PROFILE = ROOT / "examples" / "profiles" / "gpu_model_pp4.csv"


def values(profile: Path = PROFILE, power_w: float = 80) -> dict[str, object]:
    """An object of each public class that the library makes of a profile, made anew."""
    schedule = Schedule.one_f_one_b(pp=4, microbatches=6)
    read = perseus_dist.read_profile(profile)
    frontier = perseus_dist.plan(read, schedule, blocking_power_w=power_w)
    comparison = perseus_dist.compare(frontier)
    emulation = perseus_dist.emulate(frontier, pipelines=2, stragglers=[1.2])
    plan = frontier.at(straggler_s=1.2 * frontier.t_min_s)
    made = [read, schedule, frontier, plan, plan.instructions[0], comparison, comparison.plans[0]]
    made += [emulation, emulation.plans[0], emulation.stragglers[0]]
    return {type(value).__name__: value for value in made}


@cache
def first() -> dict[str, object]:
    return values()


@cache
def second() -> dict[str, object]:
    return values()


@cache
def other_power() -> dict[str, object]:
    return values(power_w=60)


CLASSES = sorted(
    name
    for name in perseus_dist.__all__
    if isinstance(each := getattr(perseus_dist, name), type) and not issubclass(each, Exception)
)


def test_every_public_class_is_looked_at() -> None:
    assert sorted(first()) == CLASSES


@pytest.mark.parametrize("name", CLASSES)
def test_what_is_made_twice_is_equal_and_hashes_alike(name: str) -> None:
    one, same = first()[name], second()[name]
    for other in (same, copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert one == other
        assert not (one != other)  # noqa: SIM202 - it is another method
        assert hash(one) == hash(other)
        assert {one: 1}[other] == 1
    assert one != "another type"
    assert one != None  # noqa: E711 - as anyone may compare


@pytest.mark.parametrize("name", sorted({*CLASSES} - {"Profile", "Schedule", "ComparedPlan"}))
def test_what_is_another_is_not_equal(name: str) -> None:
    assert first()[name] != other_power()[name]


def test_one_number_makes_another_profile(tmp_path: Path) -> None:
    copied = tmp_path / PROFILE.name
    lines = PROFILE.read_text().splitlines()
    copied.write_text("\n".join(lines))
    before = perseus_dist.read_profile(copied)
    assert before == perseus_dist.read_profile(copied)
    for row in (1, len(lines) // 2, len(lines) - 1):
        cells = lines[row].split(",")
        cells[4] = repr(float(cells[4]) * 1.0001)
        copied.write_text("\n".join([*lines[:row], ",".join(cells), *lines[row + 1 :]]))
        assert before != perseus_dist.read_profile(copied)


def test_a_plan_is_its_clocks_and_not_its_deadline() -> None:
    frontier = first()["Frontier"]
    assert isinstance(frontier, perseus_dist.Frontier)
    assert frontier.at(deadline_s=frontier.t_min_s) == frontier.at(slowdown=1.0)
    assert frontier.fastest != frontier.least_energy
    assert frontier.at(straggler_s=2 * frontier.t_min_s) != frontier.at(straggler_s=3 * frontier.t_min_s)


def test_arrays_are_equal_by_numbers_and_shape() -> None:
    class Held(ValueEquality):
        def __init__(self, **held: object) -> None:
            self.__dict__.update(held)

    assert Held(a=np.array([np.nan, 0.0])) == Held(a=np.array([-np.nan, -0.0]))
    assert Held(a=np.array([1, 2], dtype=np.int32)) == Held(a=np.array([1, 2], dtype=np.uint16))
    assert Held(a=np.zeros((2, 3))) != Held(a=np.zeros((3, 2)))
    assert Held(a=np.zeros(2)) != Held(a=np.array([0.0, 5e-324]))
    assert Held(a={1: float("nan"), 2: [1]}) == Held(a={2: (1,), 1: float("nan")})
    assert Held(a=1) != Held(b=1)


def test_no_dataclass_compares_arrays_by_the_equality_that_raises() -> None:
    found = []
    for path in (ROOT / "perseus_dist").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            decorators = [ast.unparse(each) for each in node.decorator_list]
            held = [ast.unparse(each.annotation) for each in node.body if isinstance(each, ast.AnnAssign)]
            if any(each.startswith("dataclass") and "eq=False" not in each for each in decorators):
                found += [f"{path}: {node.name}" for each in held if re.search(r"Array\b|ndarray", each)]
    assert not found
