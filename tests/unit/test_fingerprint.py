"""Which work is the same, and what a profile and a plan need of it."""

from dataclasses import fields, replace

import pytest

from perseus_dist.fingerprint import (
    PLAN_FIELDS,
    PROFILE_FIELDS,
    STAGE_FIELDS,
    Fingerprint,
    Workload,
    differences,
    fits_profile,
    merged,
    of_stage,
)

WORKLOAD = Workload(
    framework="deepspeed",
    versions=("deepspeed 0.19.8", "torch 2.13.0"),
    precision="bf16",
    microbatch_size=4,
    sequence_length=2048,
    stage_parameters=(10, 20),
    stage_layers=(1, 2),
    tp_size=2,
    cp_size=1,
    ep_size=1,
)
KNOWN = Fingerprint(
    schedule_digest="0123456789abcdef" * 4,
    granularity="instruction",
    pp_size=4,
    dp_size=2,
    node_size=2,
    gpu_name="NVIDIA A100",
    gpu_memory_mib=81920,
    clocks_mhz=(1410, 1395, 1380),
    default_power_limit_w=400,
    power_limit_w=400,
    power_profiles="none",
    workload=WORKLOAD,
)
OTHER_WORK = {
    "framework": "megatron-core",
    "versions": ("deepspeed 0.19.8", "torch 2.14.0"),
    "precision": "fp16",
    "microbatch_size": 8,
    "sequence_length": 4096,
    "stage_parameters": (10, 21),
    "stage_layers": (1, 3),
    "tp_size": 1,
    "cp_size": 2,
    "ep_size": 2,
}
OTHER = {
    "schedule_digest": "f" * 64,
    "granularity": "rank",
    "pp_size": 2,
    "dp_size": 4,
    "node_size": 1,
    "gpu_name": "NVIDIA A40",
    "gpu_memory_mib": 46068,
    "clocks_mhz": (1740, 1725),
    "default_power_limit_w": 300,
    "power_limit_w": 250,
    "power_profiles": "max-q",
} | OTHER_WORK


def with_field(name: str, value: object) -> Fingerprint:
    if name in OTHER_WORK:
        return replace(KNOWN, workload=replace(WORKLOAD, **{name: value}))  # type: ignore[arg-type]
    return replace(KNOWN, **{name: value})  # type: ignore[arg-type]


def unknown(name: str) -> object:
    return getattr(Workload() if name in OTHER_WORK else Fingerprint(), name)


def test_every_field_is_named() -> None:
    names = {one.name for kind in (Fingerprint, Workload) for one in fields(kind)} - {"workload"}
    assert names == PLAN_FIELDS == OTHER.keys()


@pytest.mark.parametrize("name", sorted(OTHER))
def test_a_field_that_is_known_and_differs_is_found_alone(name: str) -> None:
    (found,) = differences(KNOWN, with_field(name, OTHER[name]))
    assert found.field == name
    assert found.before != found.now
    assert found.before in found.clause
    assert found.now in found.clause
    assert fits_profile((found,)) == (name in ("schedule_digest", "granularity"))


@pytest.mark.parametrize("name", sorted(OTHER))
def test_what_is_not_known_is_not_compared(name: str) -> None:
    without = with_field(name, unknown(name))
    assert differences(KNOWN, without) == differences(without, KNOWN) == ()


@pytest.mark.parametrize("name", sorted(OTHER))
def test_a_value_stays_on_file_while_later_ones_are_unknown(name: str) -> None:
    kept = merged(KNOWN, with_field(name, unknown(name)))
    assert kept == KNOWN
    (found,) = differences(kept, with_field(name, OTHER[name]))
    assert found.field == name


def test_what_is_known_later_replaces_what_was_known() -> None:
    now = with_field("gpu_name", "NVIDIA A40")
    assert merged(KNOWN, now) == now
    assert merged(Fingerprint(), KNOWN) == KNOWN


def test_the_same_work_does_not_differ() -> None:
    assert differences(KNOWN, replace(KNOWN)) == ()
    assert fits_profile(())


def test_a_plan_needs_what_a_profile_needs_the_schedule_and_what_has_a_clock() -> None:
    assert {"schedule_digest", "granularity"} == PLAN_FIELDS - PROFILE_FIELDS


def test_a_clause_is_short_and_shows_both_values() -> None:
    (menu,) = differences(KNOWN, with_field("clocks_mhz", (1740, 1725)))
    assert menu.clause == "the clock menu was 3 clocks from 1410 to 1380 MHz and is 2 clocks from 1740 to 1725 MHz"
    (gpu,) = differences(KNOWN, with_field("gpu_name", "NVIDIA A40"))
    assert gpu.clause == "the GPU was NVIDIA A100 and is NVIDIA A40"


def test_a_stage_needs_neither_sizes_nor_the_part_of_the_model() -> None:
    bare = of_stage(KNOWN)
    assert {one.field for one in differences(KNOWN, bare)} == set()
    for name in OTHER:
        assert (of_stage(with_field(name, OTHER[name])) == bare) == (name not in STAGE_FIELDS)
