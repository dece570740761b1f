"""Starts the files that take longest first, so that at the end no core waits for one of them.

With ``--dist loadfile`` a worker takes one file after another, in the order of collection; the order of xdist, by the
number of tests, leaves the frameworks' runs to the end, each one test of a minute.
"""

import pytest

_NAMES = """
megatron_adapter example_megatron deepspeed_launcher_command pipelining_loop measure deepspeed_adapter
deepspeed_loop example_deepspeed forbidden_paths request_queue phase_plans_virtual runs_virtual megatron_loop
megatron_launch docs_commands deepspeed_launcher chaos_histories doctor frontier_against_lp loop_clocks
job_cache megatron_writers planning_worker simulate agent_embedded planner_budgets malformed_input clockd_faults
agent_process pristine_parsers cli_finds_jobs coarse_frontier frontier_file chaos_seeds node_relay
device_controls pipelining_launch pipelining_adapter guard_virtual agent_reattach megatron_arguments replicas
planner_process cli_streams cli_fuzz loop_security planner_lifecycle planner_self_check straggler_traces
planner_users cli_report
"""
LONGEST = tuple(f"test_{name}.py" for name in _NAMES.split())
"""By the time that all of a file's tests take beside others."""


def pytest_configure(config: pytest.Config) -> None:
    """Have xdist keep the order of the default tier; in the stress tier two frameworks at a time disturb each other."""
    if hasattr(config.option, "loadscopereorder") and not _is_stress(config):
        config.option.loadscopereorder = False


def _is_stress(config: pytest.Config) -> bool:
    return bool(config.option.markexpr.startswith("stress"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first; the others as they were."""
    if _is_stress(config):
        return
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))
