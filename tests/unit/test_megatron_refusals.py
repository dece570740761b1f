"""Runs of Megatron that no plan is made for, by the names that versions give their settings."""

from types import SimpleNamespace
from typing import Any

import pytest

from perseus_dist.megatron.refusals import reason_against


class MultiModulePipelineCommunicator:
    """Has the name of Megatron's."""


@pytest.mark.parametrize(
    ("call", "config", "flag"),
    [
        ({}, {"overlap_moe_expert_parallel_comm": True}, "--overlap-moe-expert-parallel-comm"),
        ({}, {"hybrid_context_parallel": True}, "--hybrid-context-parallel"),
        ({}, {"dynamic_context_parallel": True}, "--dynamic-context-parallel"),
        ({}, {"cuda_graph_impl": "full_iteration"}, "--cuda-graph-impl"),
        ({}, {"cuda_graph_impl": "local", "cuda_graph_scope": "full_iteration"}, "--cuda-graph-scope"),
        (
            {},
            {"cuda_graph_impl": "local", "cuda_graph_scope": [SimpleNamespace(name="full_iteration")]},
            "--cuda-graph",
        ),
        ({}, {"enable_cuda_graph": True, "cuda_graph_scope": "full_iteration"}, "--cuda-graph-scope"),
        ({"p2p_communicator": MultiModulePipelineCommunicator()}, {}, "train one model"),
    ],
)
def test_refused_runs(call: dict[str, Any], config: dict[str, Any], flag: str) -> None:
    reason = reason_against(call, SimpleNamespace(**config))
    assert reason is not None
    assert flag in reason


def test_pairs_that_can_be_seen_are_not_refused() -> None:
    assert reason_against({}, SimpleNamespace(overlap_moe_expert_parallel_comm=True), knows_pairs=True) is None


@pytest.mark.parametrize(
    "config",
    [
        {"cuda_graph_impl": "local", "cuda_graph_scope": []},
        {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": "attn,mlp"},
        {"cuda_graph_impl": "none", "cuda_graph_scope": "full_iteration"},
        {"enable_cuda_graph": True, "cuda_graph_scope": "full"},
        {"cuda_graph_impl": "local", "cuda_graph_scope": None},
    ],
)
def test_graphs_of_layers_are_not_refused(config: dict[str, Any]) -> None:
    assert reason_against({}, SimpleNamespace(**config)) is None
