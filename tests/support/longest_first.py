"""Starts the files that take longest first, so that at the end no core waits for one of them.

With ``--dist loadfile`` a worker takes one file after another, in the order of collection; the order of xdist, by the
number of tests, leaves the frameworks' runs to the end, each one test of a minute.
"""

from pathlib import Path

import pytest

LONGEST = (
    *("test_megatron_adapter.py", "test_example_megatron.py", "test_deepspeed_adapter.py", "test_measure.py"),
    *(
        "test_deepspeed_launcher_command.py",
        "test_example_deepspeed.py",
        "test_runs_virtual.py",
        "test_megatron_loop.py",
    ),
    *("test_pipelining_loop.py", "test_megatron_launch.py", "test_deepspeed_loop.py", "test_chaos_histories.py"),
    *("test_chaos_seeds.py", "test_planner_process.py", "test_deepspeed_launcher.py", "test_agent_embedded.py"),
    *("test_clockd_faults.py", "test_agent_process.py", "test_cli_streams.py", "test_loop_clocks.py"),
    *("test_megatron_arguments.py", "test_agent_reattach.py", "test_malformed_input.py", "test_frontier_against_lp.py"),
    *("test_cli_finds_jobs.py", "test_megatron_writers.py", "test_cli_report.py", "test_straggler_traces.py"),
)


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
    items.sort(key=lambda item: places.get(Path(item.path).name, len(LONGEST)))
