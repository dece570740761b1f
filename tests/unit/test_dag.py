import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.planning.schedule.dag import Dag, build_dag
from perseus_dist.planning.schedule.dry_run import check_schedule, dry_run
from perseus_dist.planning.schedule.instruction import SEND_BACKWARD, SEND_FORWARD
from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.planning.schedule.schedule import Schedule, interleaved, joint_exchanges, overlapped
from perseus_dist.planning.schedule.schedule_text import parse_schedule

INTERLEAVED = st.builds(interleaved, pp=st.integers(2, 4), microbatches=st.just(12), chunks=st.integers(2, 3))
SCHEDULES = (
    st.builds(make_schedule, st.sampled_from(["gpipe", "1f1b"]), pp=st.integers(1, 6), microbatches=st.integers(1, 12))
    | INTERLEAVED
    | INTERLEAVED.map(joint_exchanges)
    | (INTERLEAVED | INTERLEAVED.map(joint_exchanges)).map(overlapped)
)


def edges(dag: Dag) -> dict[tuple[str, str], str]:
    return {(str(a), str(b)): data["rule"] for a, b, data in dag.to_networkx().edges(data=True)}


def test_full_backward() -> None:
    assert edges(build_dag(parse_schedule("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"))) == {
        ("0F0", "0F1"): "order",
        ("0F0", "0B0"): "data",
        ("0F1", "0B0"): "order",
        ("0B0", "0B1"): "order",
        ("0F1", "0B1"): "data",
        ("0F0", "1F0"): "data",
        ("0F1", "1F1"): "data",
        ("1F0", "1B0"): "data",  # next on the rank as well: one edge
        ("1B0", "1F1"): "order",
        ("1F1", "1B1"): "data",
        ("1B0", "0B0"): "data",
        ("1B1", "0B1"): "data",
    }


def test_split_backward_waits_for_the_input_gradient_alone() -> None:
    assert edges(build_dag(parse_schedule("0F0 0I0 0W0\n1F0 1I0 1W0\n2F0 2B0"))) == {
        ("0F0", "0I0"): "data",
        ("0I0", "0W0"): "data",
        ("1F0", "1I0"): "data",
        ("1I0", "1W0"): "data",
        ("2F0", "2B0"): "data",
        ("0F0", "1F0"): "data",
        ("1F0", "2F0"): "data",
        ("2B0", "1I0"): "data",
        ("1I0", "0I0"): "data",
    }


def test_a_forward_and_a_backward_that_run_as_one_are_one_node() -> None:
    """It waits for what either needs, ``0OVERLAP_F1`` being there for that, and both results come of it."""
    text = "0F0 0F1 2F0 2OVERLAP_F1 2FB0 2B1 0B0 0B1\n1F0 1F1 1B0 1B1"
    found = edges(build_dag(parse_schedule(text)))
    pair = {edge: rule for edge, rule in found.items() if {"2OVERLAP_F1", "2FB0"} & {*edge}}
    assert pair == {
        ("2F0", "2OVERLAP_F1"): "order",
        ("1F1", "2OVERLAP_F1"): "data",
        ("2OVERLAP_F1", "2FB0"): "order",
        ("2F0", "2FB0"): "data",
        ("2FB0", "2B1"): "data",
        ("2FB0", "1B0"): "data",
    }


def test_constants_stand_in_rank_order_and_sends_block_the_receiver() -> None:
    assert edges(build_dag(parse_schedule("0LOAD0 0F0 0SEND_F0 0B0 0STEP\n1F0 1B0 1SEND_B0"))) == {
        ("0LOAD0", "0F0"): "order",
        ("0F0", "0SEND_F0"): "data",
        ("0SEND_F0", "0B0"): "order",
        ("0F0", "0B0"): "data",
        ("0B0", "0STEP"): "order",
        ("1F0", "1B0"): "data",
        ("1B0", "1SEND_B0"): "data",
        ("0F0", "1F0"): "data",
        ("0SEND_F0", "1F0"): "data",
        ("1B0", "0B0"): "data",
        ("1SEND_B0", "0B0"): "data",
    }


def test_joint_instructions_wait_and_are_waited_for_as_one() -> None:
    assert edges(build_dag(parse_schedule("0F0 0F1+ 0B0 0B1\n1F0+ 1B0 1F1+ 1B1"))) == {
        ("0F0", "0F1"): "order",
        ("0F0", "0B0"): "data",
        ("0F1", "0B0"): "order",
        ("0B0", "0B1"): "order",
        ("0F1", "0B1"): "data",
        ("0F0", "1F0"): "data",
        ("0B0", "1F1"): "data",  # 0F1's result leaves after 0B0
        ("1F0", "1B0"): "data",
        ("1B0", "1F1"): "order",
        ("1F1", "1B1"): "data",
        ("1B0", "0F1"): "data",  # what 0B0 needs has arrived before 0F1 begins
        ("1B1", "0B1"): "data",
        ("1B0", "0B1"): "data",  # rank 1 asks for 0F1's result only then, and rank 0 waits until it does
        ("0F0", "1F1"): "data",  # as rank 1 waits until 1B0's result is asked for
    }


def test_the_first_gradient_is_asked_for_after_the_last_forward_is_sent_where_all_forwards_come_first() -> None:
    """And no other transfer waits for another: the run before it, which it is asked for after, is of its own kind."""
    schedule = joint_exchanges(interleaved(pp=2, microbatches=2, chunks=2))
    timed = {(stage, kind) for stage in range(4) for kind in (SEND_FORWARD, SEND_BACKWARD)}
    found = edges(build_dag(schedule, frozenset(timed)))
    assert {edge for edge in found if all("SEND" in one for one in edge)} == {("2SEND_F1", "3SEND_B0")}
    assert ("2F1", "3SEND_B0") in found


@given(INTERLEAVED)
def test_joint_exchanges_only_add_precedence(schedule: Schedule) -> None:
    joint = nx.transitive_closure_dag(build_dag(joint_exchanges(schedule)).to_networkx())
    assert set(build_dag(schedule).to_networkx().edges) <= set(joint.edges)


@pytest.mark.parametrize(
    ("pp", "microbatches", "chunks", "group"),
    [(4, 8, 2, None), (8, 32, 4, None), (16, 64, 2, None), (8, 64, 3, 16), (4, 10, 2, 5), (2, 2, 8, None)],
)
def test_joint_exchanges_of_real_sizes_come_to_an_end(
    pp: int, microbatches: int, chunks: int, group: int | None
) -> None:
    plain = interleaved(pp=pp, microbatches=microbatches, chunks=chunks, microbatch_group_size=group)
    joint = joint_exchanges(plain)
    check_schedule(joint)
    places = ["pp_rank"] * pp
    assert max(dry_run(joint, places=places).values()) >= max(dry_run(plain, places=places).values())


@given(SCHEDULES)
def test_arrays(schedule: Schedule) -> None:
    dag = build_dag(schedule)
    assert dag.instructions == sum(schedule.ranks, ())
    assert [schedule.rank_of_stage[i.stage] for i in dag.instructions] == dag.pp_rank.tolist()
    assert {array.dtype for array in (dag.pp_rank, dag.edges, dag.previous_on_rank)} == {np.dtype(np.int32)}

    pairs = [tuple(edge) for edge in dag.edges.tolist()]
    assert len(set(pairs)) == len(pairs)
    assert all(before != after for before, after in pairs)
    assert pairs == sorted(pairs, key=lambda edge: (edge[1], edge[0]))
    for i, previous in enumerate(dag.previous_on_rank.tolist()):
        first = i == 0 or dag.pp_rank[i] != dag.pp_rank[i - 1]
        assert previous == (-1 if first else i - 1)
        assert first or (previous, i) in pairs


@given(SCHEDULES)
def test_networkx_agrees_with_the_arrays_and_the_dry_run(schedule: Schedule) -> None:
    dag = build_dag(schedule)
    graph = dag.to_networkx()
    assert nx.is_directed_acyclic_graph(graph)
    assert [graph.nodes[i]["index"] for i in dag.instructions] == list(range(len(dag.instructions)))
    assert [graph.nodes[i]["pp_rank"] for i in dag.instructions] == dag.pp_rank.tolist()
    assert all(graph.nodes[i]["kind"] == i.kind for i in graph)
    assert {(dag.instructions[a], dag.instructions[b]) for a, b in dag.edges.tolist()} == set(graph.edges)

    depth = {i: step for step, generation in enumerate(nx.topological_generations(graph)) for i in generation}
    assert dry_run(schedule, places=["pp_rank"] * schedule.num_ranks) == depth


def test_arrays_cannot_be_changed_behind_the_readers() -> None:
    dag = build_dag(make_schedule("1f1b", pp=2, microbatches=2))
    with pytest.raises(ValueError, match="read-only"):
        dag.edges[0, 0] = 1


def test_a_large_schedule_takes_no_search_over_pairs() -> None:
    """A search over its thousand million pairs would take minutes."""
    schedule = interleaved(pp=16, microbatches=256, chunks=4)
    check_schedule(schedule)
    dag = build_dag(schedule)
    assert dag.edges.shape == (81136, 2)
