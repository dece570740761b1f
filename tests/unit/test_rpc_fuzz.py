"""A hundred thousand hostile messages: each is taken as valid or refused by name, and nothing else ever happens."""

import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from perseus_dist.rpc.codec import decode_agent_message, decode_planner_message
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import InvalidMessageError

HOSTILE_NUMBERS = (float("nan"), float("inf"), float("-inf"), -1.0, 1e308, 5e-324)
HOSTILE_INTEGERS = (-(2**31), -1, 0, 1, 2**31 - 1)

DIGEST = "0f" * 32
AGENT_SEEDS = (
    pb.AgentMessage(
        attach=pb.Attach(
            rank=pb.Rank(job_id="job", pp_size=2, dp_size=1, tp_size=1, schedule_digest=DIGEST),
            gpu=pb.Gpu(uuid="GPU-1", name="A100", clocks_mhz=[1410, 1395, 1380], control="clockd"),
            incarnation=7,
            target=pb.Target(slowdown=1.1),
        )
    ),
    pb.AgentMessage(schedule=pb.ScheduleText(text="0F0 0B0\n1F0 1B0")),
    pb.AgentMessage(
        samples=pb.ProfileSamples(
            sequence=1,
            sweep_id=1,
            samples=[pb.Sample(kind="F", clock_mhz=1410, time_s=0.1, energy_j=20, num_runs=4, window_s=2, stage=-1)],
        )
    ),
    pb.AgentMessage(
        telemetry=pb.Telemetry(
            sequence=1,
            iteration=6,
            iterations=[
                pb.IterationReport(
                    iteration=4,
                    time_s=2,
                    pipeline_time_s=2,
                    energy_j=700,
                    energy_known=True,
                    kind_times=[pb.KindTime(kind="F", time_ratio=1.0, requested_mhz=1410)],
                    tokens=4096,
                    input_wait_s=0.25,
                )
            ],
            gpu=pb.GpuSample(clock_mhz=1005, requested_mhz=1410, event_reasons=0x20),
            control="clockd",
        )
    ),
    pb.AgentMessage(
        drift=pb.Drift(sequence=1, kind="F", clock_mhz=1410, profile_time_s=0.1, measured_time_s=0.2, num_runs=3)
    ),
    pb.AgentMessage(run_times=pb.RunTimes(iteration=12, first_ns=10**15, begins_ns=[0, 70], ends_ns=[50, 90])),
    pb.AgentMessage(
        run_times=pb.RunTimes(
            iteration=32, begins_ns=[0, 70], ends_ns=[50, 90], clocks_mhz=[1410, 1200], table_revision=2, point=7
        )
    ),
)
PLANNER_SEEDS = (
    pb.PlannerMessage(sweep=pb.Sweep(sweep_id=1, first_iteration=9, iterations_per_clock=1, clocks_mhz=[1410, 1200])),
    pb.PlannerMessage(
        table=pb.PlanTable(
            revision=1,
            num_points=1,
            num_instructions=1,
            clocks_mhz=b"x\x9cc`\x00\x00\x00\x02\x00\x01",
            times_s=[1.0],
            energies_j=[2.0],
            expected=[pb.Expected(kind="F", clocks_mhz=[1410], times_s=[0.1], energies_j=[20])],
            schedule_digest=DIGEST,
        )
    ),
    pb.PlannerMessage(
        table=pb.PlanTable(
            revision=2,
            base_revision=1,
            num_points=1,
            num_instructions=1,
            clocks_mhz=b"x\x9cc`\x00\x00\x00\x02\x00\x01",
            times_s=[1.0],
            energies_j=[2.0],
            schedule_digest=DIGEST,
        )
    ),
    pb.PlannerMessage(switch=pb.Switch(table_revision=1, point=0, effective_iteration=5, switch_revision=1)),
    pb.PlannerMessage(refused=pb.Refused(reason="no", retry=True)),
)


@pytest.mark.parametrize("num_messages", [20_000, pytest.param(60_000, marks=pytest.mark.stress)])
@pytest.mark.parametrize(
    ("decode", "seeds"), [(decode_agent_message, AGENT_SEEDS), (decode_planner_message, PLANNER_SEEDS)]
)
def test_hostile_bytes_are_taken_or_refused(
    decode: Callable[[bytes], object],
    seeds: Sequence[pb.AgentMessage] | Sequence[pb.PlannerMessage],
    num_messages: int,
) -> None:
    chance = random.Random(20)
    encoded = [seed.SerializeToString() for seed in seeds]
    outcomes: Counter[str] = Counter()
    longest = 0
    tracemalloc.start()
    try:
        for _ in range(num_messages):
            data = mutated(chance, chance.choice(encoded))
            try:
                decode(data)
                outcomes["taken"] += 1
            except InvalidMessageError as error:
                outcomes["refused"] += 1
                longest = max(longest, len(str(error)))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert longest < 4096  # gRPC carries 8 KiB of metadata
    assert outcomes["taken"] > 100
    assert outcomes["refused"] > num_messages / 2


@pytest.mark.parametrize("seed", AGENT_SEEDS)
def test_hostile_values_in_every_field_are_taken_or_refused(seed: pb.AgentMessage) -> None:
    which = seed.WhichOneof("message")
    assert which is not None
    for path, value in hostile_fields(getattr(seed, which)):
        message = pb.AgentMessage.FromString(seed.SerializeToString())
        set_field(getattr(message, which), path, value)
        try:
            decode_agent_message(message.SerializeToString())
        except InvalidMessageError as error:
            assert error.violations  # noqa: PT017


def mutated(chance: random.Random, data: bytes) -> bytes:
    """Random bytes, or a valid message with bytes changed, removed, repeated, inserted."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(200))
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0:
                changed[at : at + 1] = chance.randbytes(1)
            case 1:
                del changed[at : at + chance.randrange(1, 9)]
            case 2:
                changed[at:at] = changed[at : at + chance.randrange(1, 40)]
            case _:
                changed[at:at] = chance.randbytes(chance.randrange(1, 9))
    return bytes(changed)


def hostile_fields(message: object, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], object]]:
    """Every field that is a number, with every hostile value that it can hold."""
    found: list[tuple[tuple[str | int, ...], object]] = []
    for field in message.DESCRIPTOR.fields:  # type: ignore[attr-defined]
        value = getattr(message, field.name)
        here = (*path, field.name)
        if field.message_type is not None:
            parts = list(enumerate(value)) if field.is_repeated else [(None, value)]
            for index, part in parts:
                found += hostile_fields(part, here if index is None else (*here, index))
        elif not field.is_repeated and isinstance(value, float):
            found += [(here, number) for number in HOSTILE_NUMBERS]
        elif not field.is_repeated and isinstance(value, int) and not isinstance(value, bool):
            unsigned = field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
            found += [(here, number) for number in HOSTILE_INTEGERS if number >= 0 or not unsigned]
    return found


def set_field(message: object, path: tuple[str | int, ...], value: object) -> None:
    """Set one field, however deep."""
    for part in path[:-1]:
        message = message[part] if isinstance(part, int) else getattr(message, part)  # type: ignore[index]
    setattr(message, str(path[-1]), value)
