"""What a call of a Megatron schedule says of the work; modules are torch's own, the configuration is made by hand."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from perseus_dist.fingerprint import Workload
from perseus_dist.megatron.model_workload import workload_of
from perseus_dist.training.rank.workload import installed_versions, known_size, read_workload

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


def config(**changes: object) -> SimpleNamespace:
    usual = {
        "bf16": True,
        "fp16": False,
        "tensor_model_parallel_size": 2,
        "context_parallel_size": 1,
        "expert_model_parallel_size": 4,
        "variable_seq_lengths": False,
    }
    return SimpleNamespace(**{**usual, **changes})


def call(**changes: object) -> dict[str, object]:
    from torch import nn  # not by every worker that collects this file

    return {"model": [nn.Linear(4, 3), nn.Linear(3, 2)], "seq_length": 4096, "micro_batch_size": 2, **changes}


def test_the_whole_of_it() -> None:
    assert workload_of(call(), config()) == Workload(
        framework="megatron-core",
        versions=installed_versions("megatron-core"),
        precision="bf16",
        microbatch_size=2,
        sequence_length=4096,
        stage_parameters=(15, 8),
        tp_size=2,
        cp_size=1,
        ep_size=4,
    )


def test_what_is_not_known_stays_so() -> None:
    from torch import nn

    found = workload_of({"model": nn.Linear(4, 3)}, SimpleNamespace())
    assert (found.microbatch_size, found.sequence_length, found.tp_size) == (0, 0, 0)
    assert (found.precision, found.stage_parameters) == ("fp32", (15,))


def test_layers_are_those_of_the_longest_container_of_that_name() -> None:
    from torch import nn

    block = nn.ModuleDict(
        {"layers": nn.ModuleList([nn.Linear(2, 2)] * 3), "mtp": nn.ModuleDict({"layers": nn.ModuleList()})}
    )
    chunks = [nn.ModuleDict({"module": nn.ModuleDict({"decoder": block})}), block]
    assert workload_of(call(model=chunks), config()).stage_layers == (3, 3)
    assert workload_of(call(model=[block, nn.Linear(2, 2)]), config()).stage_layers == ()


@pytest.mark.parametrize(
    ("changes", "precision"),
    [({"fp8": "hybrid"}, "fp8"), ({"bf16": False, "fp16": True}, "fp16"), ({"bf16": False}, "fp32")],
)
def test_the_precision_is_what_layers_compute_in(changes: dict[str, object], precision: str) -> None:
    assert workload_of(call(), config(**changes)).precision == precision


def test_lengths_that_change_are_no_length() -> None:
    assert workload_of(call(), config(variable_seq_lengths=True)).sequence_length == 0


def test_a_model_that_cannot_be_read_is_unknown_and_not_an_error() -> None:
    assert read_workload(lambda: workload_of({}, config())) == Workload()


@pytest.mark.parametrize(("said", "size"), [(4, 4), (None, 0), (-1, 0), ("4", 0), (1 << 40, 0), (0, 0)])
def test_only_sizes_are_sizes(said: object, size: int) -> None:
    assert known_size(said) == size


def test_installed_distributions_are_named_with_their_versions_and_sorted() -> None:
    found = installed_versions("pytest", "no-such-distribution")
    assert f"pytest {pytest.__version__}" in found
    assert list(found) == sorted(found)
    assert not any("no-such" in one for one in found)


def test_layers_in_a_module_of_that_name_that_has_no_length_are_counted_as_its_children() -> None:
    from torch import nn

    class Stack(nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self, num_layers: int) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(2, 2)] * num_layers)

    def stage(layers: nn.Module) -> nn.Module:
        return nn.ModuleDict({"layers": layers})

    found = workload_of(call(model=[stage(Stack(3)), stage(Stack(5))]), config())
    assert (found.stage_layers, found.stage_parameters) == ((3, 5), (6, 6))
    found = workload_of(call(model=[stage(nn.Linear(2, 2))]), config())
    assert (found.stage_layers, found.stage_parameters) == ((), (6,))


def test_a_module_whose_layers_cannot_be_counted_leaves_the_other_fields_known() -> None:
    from torch import nn

    class Odd(nn.Module):  # type: ignore[misc]  # torch has no types here
        def __len__(self) -> int:
            raise NotImplementedError

    found = read_workload(lambda: workload_of(call(model=[nn.ModuleDict({"layers": Odd()})]), config()))
    assert (found.stage_layers, found.stage_parameters, found.microbatch_size) == ((), (0,), 2)
