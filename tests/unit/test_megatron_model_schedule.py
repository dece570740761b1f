"""What a call of a schedule function promises."""

from types import SimpleNamespace
from typing import Any

import pytest

from perseus_dist.errors import ScheduleError
from perseus_dist.megatron.model_schedule import INTERLEAVED, SCHEDULE_FUNCTIONS, read_iteration, read_schedule
from perseus_dist.planning.schedule.schedule import format_schedule

CONFIG = {
    "overlap_p2p_comm": True,
    "deallocate_pipeline_outputs": True,
    "finalize_model_grads_func": None,
    "microbatch_group_size_per_vp_stage": 2,
    "sequence_parallel": False,
    "tensor_model_parallel_size": 1,
}


def schedule(
    function: str,
    model: object,
    *,
    pp: int,
    has_step: bool = False,
    core_version: tuple[int, int] = (0, 16),
    **config: Any,
) -> str:
    call = {"model": model, "num_microbatches": 2}
    iteration = read_iteration(
        function, call, SimpleNamespace(**{**CONFIG, **config}), core_version=core_version, has_step=has_step
    )
    return format_schedule(read_schedule(iteration, pp))


def test_one_chunk_with_or_without_a_list() -> None:
    for model in (object(), [object()]):
        assert schedule(SCHEDULE_FUNCTIONS[0], model, pp=1) == "0F0 0B0 0F1 0B1\n"
        assert schedule(SCHEDULE_FUNCTIONS[1], model, pp=2) == "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"


def test_gradients_and_step_end_an_iteration() -> None:
    text = schedule(SCHEDULE_FUNCTIONS[1], object(), pp=2, has_step=True, finalize_model_grads_func=print)
    assert [line.split()[-2:] for line in text.splitlines()] == [["0REDUCE", "0STEP"], ["1REDUCE", "1STEP"]]


def test_exchanges_are_joint_where_they_do_not_overlap() -> None:
    chunks = [object(), object()]
    assert "+" not in schedule(INTERLEAVED, chunks, pp=2)
    assert "3F0+ 3B0" in schedule(INTERLEAVED, chunks, pp=2, overlap_p2p_comm=False, has_step=True)
    assert "+" not in schedule(SCHEDULE_FUNCTIONS[1], object(), pp=2, overlap_p2p_comm=False)


def test_how_exchanges_overlap_depends_on_version_and_options() -> None:
    def ends(**options: Any) -> str:
        return schedule(INTERLEAVED, [object(), object()], pp=2, **options).splitlines()[-1]

    assert ends() == ends(core_version=(0, 17)) == "# exchange: overlapped"
    assert ends(core_version=(0, 18)) == ends(core_version=(1, 0)) == "# exchange: overlapped-backwards"
    assert ends(core_version=(0, 18), deallocate_pipeline_outputs=False) == "# exchange: overlapped"
    for unknown in ("overlap_p2p_comm_warmup_flush", "overlap_moe_expert_parallel_comm"):
        assert "exchange" not in ends(**{unknown: True})
    assert "exchange" not in schedule(SCHEDULE_FUNCTIONS[1], object(), pp=2, core_version=(0, 18))


def test_a_forward_and_a_backward_run_as_one_where_megatron_does_that() -> None:
    ep: Any = {"overlap_moe_expert_parallel_comm": True}
    assert schedule(SCHEDULE_FUNCTIONS[0], object(), pp=1, **ep) == "0F0 0OVERLAP_F1 0FB0 0B1\n"
    assert "1F0 1F1 3F0 3OVERLAP_F1 3FB0 3B1 1B0" in schedule(INTERLEAVED, [object(), object()], pp=2, **ep)
    assert "3OVERLAP_F1+ 3FB0" in schedule(INTERLEAVED, [object(), object()], pp=2, overlap_p2p_comm=False, **ep)
    assert "FB" not in schedule(SCHEDULE_FUNCTIONS[1], object(), pp=2, **ep)


@pytest.mark.parametrize(("divides", "copies"), [(False, 4), (True, 1)])
def test_sequence_parallelism_divides_the_tokens_of_a_tensor_parallel_group(divides: bool, copies: int) -> None:  # noqa: FBT001
    config = SimpleNamespace(**{**CONFIG, "tensor_model_parallel_size": 4, "sequence_parallel": divides})
    call = {"model": object(), "num_microbatches": 2}
    assert (
        read_iteration(SCHEDULE_FUNCTIONS[1], call, config, core_version=(0, 16), has_step=True).token_copies == copies
    )


def test_interleaving_one_chunk_is_refused() -> None:
    with pytest.raises(ScheduleError, match="one model chunk"):
        schedule(INTERLEAVED, [object()], pp=2)
