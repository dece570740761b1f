"""Messages on the wire: what goes in comes out, what is wrong is named field by field, and nothing grows large."""

import random
import tracemalloc
import zlib
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.fingerprint import Workload
from perseus_dist.messages.finding import Finding, Level
from perseus_dist.messages.from_agent import (
    AgentMessage,
    Attach,
    Drift,
    Goodbye,
    GpuSample,
    IterationReport,
    KindTime,
    ProfileSamples,
    RunTimes,
    Sample,
    ScheduleText,
    SwitchSeen,
    Telemetry,
)
from perseus_dist.messages.from_planner import (
    Attached,
    Expected,
    PlannerMessage,
    PlanTable,
    Probe,
    ProfileAck,
    Refused,
    Release,
    ScheduleWanted,
    StopSweep,
    Sweep,
    Switch,
)
from perseus_dist.messages.terms import NO_ITERATION, Gpu, Rank, Target
from perseus_dist.rpc import limits
from perseus_dist.rpc.codec import (
    decode_agent_message,
    decode_planner_message,
    encode_agent_message,
    encode_planner_message,
)
from perseus_dist.rpc.planner_wire import planner_message_to_wire
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import MAX_VIOLATIONS, InvalidMessageError

RANK = Rank(
    job_id="llama-70b.1",
    rank=5,
    pp_rank=1,
    dp_rank=1,
    tp_rank=0,
    pp_size=4,
    dp_size=2,
    tp_size=1,
    schedule_digest="0123456789abcdef" * 4,
    granularity="rank",
)
GPU = Gpu(uuid="GPU-1", name="A100", driver_version="570.1", clocks_mhz=(1410, 1395), control="clockd")
FINDING = Finding(level=Level.WARN, subject="clockd", what="does not answer", remedy="restart clockd")
ATTACH = Attach(rank=RANK, gpu=GPU, incarnation=2**64 - 1)
SAMPLE = Sample(
    chunk=0,
    kind="F",
    clock_mhz=1410,
    time_s=0.05,
    energy_j=15.0,
    time_std_s=0.0,
    energy_std_j=0.1,
    num_runs=9,
    window_s=2,
)
SAMPLES = ProfileSamples(
    sequence=1,
    sweep_id=3,
    step=2,
    samples=(SAMPLE, replace(SAMPLE, kind="CLOCK_CHANGE", energy_j=0.0, time_p90_s=0.06)),
    blocking_power_w=83.0,
    last=True,
)
FORWARD = KindTime(kind="F", time_ratio=1.02, requested_mhz=1410)
REPORT = IterationReport(
    iteration=7,
    time_s=2.5,
    pipeline_time_s=2.4,
    energy_j=900.0,
    table_revision=1,
    point=0,
    kind_times=(FORWARD, KindTime(kind="B", time_ratio=0.98, requested_mhz=1207)),
    tokens=8192.0,
    input_wait_s=0.0,
)
TELEMETRY = Telemetry(
    sequence=9,
    iteration=9,
    iterations=(
        REPORT,
        replace(REPORT, iteration=8, energy_j=None, kind_times=(), input_wait_s=None),
        replace(REPORT, iteration=9, is_live=False),
    ),
    gpu=GpuSample(requested_mhz=1395, power_w=300.0, clock_mhz=1410, event_reasons=2**64 - 1, temperature_c=61.0),
    lost_boundaries=1,
    lost_reports=2,
    clock_changes=3,
    missed_clocks=4,
    control="zeusd",
    trouble="the GPU did not reach 1410 MHz",
)
DRIFT = Drift(
    sequence=1,
    chunk=0,
    kind="B",
    clock_mhz=1300,
    profile_time_s=0.09,
    measured_time_s=0.12,
    num_runs=12,
    num_iterations=5,
)
RUN_TIMES = RunTimes(iteration=12, begins_ns=(10**15, 10**15 + 70), ends_ns=(10**15 + 50, 10**15 + 90))
AGENT_MESSAGES: tuple[AgentMessage, ...] = (
    RUN_TIMES,
    replace(RUN_TIMES, begins_ns=(), ends_ns=()),
    replace(RUN_TIMES, begins_ns=(10**15, 10**15 - 7)),  # a host's clock that was set
    replace(RUN_TIMES, clocks_mhz=(1410, 0), table_revision=3, point=0),
    replace(RUN_TIMES, host_clock="ced0382a-46be-4fb1-9c3b-2f8ae32b37fc 4026531834"),
    ATTACH,
    replace(ATTACH, iteration=12, table_revision=3, target=Target(), version="0.1.0", has_profile=True),
    replace(ATTACH, target=Target(slowdown=1.05)),
    replace(ATTACH, follows_moments=True),
    replace(ATTACH, findings=(FINDING, replace(FINDING, level=Level.FAIL, remedy=""))),
    replace(ATTACH, target=Target(deadline_s=3.2)),
    replace(ATTACH, gpu=replace(GPU, clocks_mhz=(), control="observe", refusal="no rights", energy_period_s=0.02)),
    replace(
        ATTACH,
        gpu=replace(GPU, memory_mib=81920, default_power_limit_w=400.0, power_limit_w=350.5, power_profiles="max-q"),
        run_id="8c1f",
        workload=Workload(
            framework="deepspeed",
            versions=("deepspeed 0.19.8", "torch 2.13.0"),
            precision="bf16",
            microbatch_size=4,
            sequence_length=8192,
            stage_parameters=(2**40, 7),
            stage_layers=(12, 11),
            tp_size=2,
            cp_size=1,
            ep_size=8,
        ),
    ),
    ScheduleText(text="0F0 0B0\n1F0 1B0\n"),
    SAMPLES,
    replace(SAMPLES, sweep_id=0, samples=(replace(SAMPLE, stage=3, kind="LOAD"),)),
    TELEMETRY,
    Telemetry(sequence=1),
    DRIFT,
    SwitchSeen(table_revision=3, switch_revision=4),
    Goodbye(reason="finished"),
)
TABLE = PlanTable(
    revision=4,
    num_points=2,
    num_instructions=3,
    clocks_mhz=bytes(range(12)),
    times_s=(1.0, 1.1),
    energies_j=(900.0, 850.0),
    expected=(Expected(chunk=0, kind="F", clocks_mhz=(1410, 1300), times_s=(0.05, 0.06), energies_j=(15.0, 14.0)),),
    switch_latency_s=0.012,
    schedule_digest=RANK.schedule_digest,
)
PLANNER_MESSAGES: tuple[PlannerMessage, ...] = (
    Attached(phase="profiling", table_revision=0, acked_samples=17),
    ScheduleWanted(),
    Sweep(sweep_id=1, first_iteration=20, iterations_per_clock=2, clocks_mhz=(1410, 1200)),
    StopSweep(sweep_id=1, first_iteration=33),
    Probe(first_iteration=41, num_iterations=3),
    TABLE,
    replace(TABLE, num_instructions=0, clocks_mhz=b"", expected=()),
    replace(TABLE, base_revision=3),
    replace(TABLE, change_clocks_mhz=(1410, 900), change_latencies_s=(0.006, 0.05)),
    replace(TABLE, moments_ns=(0, 3, 10**9, 2 * 10**9)),
    Switch(table_revision=4, point=-1, effective_iteration=40, switch_revision=9),
    ProfileAck(sequence=3),
    Release(reason="the schedule has changed"),
    Refused(reason="rank 5 is attached already", retry=True),
)


def with_kind_times(*kind_times: KindTime) -> Telemetry:
    return replace(TELEMETRY, iterations=(replace(REPORT, kind_times=kind_times),))


@pytest.mark.parametrize("message", AGENT_MESSAGES)
def test_agent_messages_come_out_as_they_went_in(message: AgentMessage) -> None:
    assert decode_agent_message(encode_agent_message(message)) == message


@pytest.mark.parametrize("message", PLANNER_MESSAGES)
def test_planner_messages_come_out_as_they_went_in(message: PlannerMessage) -> None:
    assert decode_planner_message(encode_planner_message(message)) == message


def test_every_kind_of_message_is_tried() -> None:
    assert {field.name for field in pb.AgentMessage.DESCRIPTOR.fields} == {
        pb.AgentMessage.FromString(encode_agent_message(message)).WhichOneof("message") for message in AGENT_MESSAGES
    }
    assert {field.name for field in pb.PlannerMessage.DESCRIPTOR.fields} == {
        pb.PlannerMessage.FromString(encode_planner_message(message)).WhichOneof("message")
        for message in PLANNER_MESSAGES
    }


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (replace(ATTACH, rank=replace(RANK, job_id="")), "attach.rank.job_id"),
        (replace(ATTACH, rank=replace(RANK, job_id=".")), "attach.rank.job_id"),
        (replace(ATTACH, rank=replace(RANK, job_id="..")), "attach.rank.job_id"),
        (replace(ATTACH, rank=replace(RANK, job_id="a" * 129)), "attach.rank.job_id"),
        (replace(ATTACH, rank=replace(RANK, job_id="../x")), "attach.rank.job_id"),
        (replace(ATTACH, rank=replace(RANK, rank=-1)), "attach.rank.rank"),
        (replace(ATTACH, rank=replace(RANK, pp_rank=4)), "attach.rank.pp_rank"),
        (replace(ATTACH, rank=replace(RANK, pp_size=0)), "attach.rank.pp_size"),
        (replace(ATTACH, rank=replace(RANK, schedule_digest="x")), "attach.rank.schedule_digest"),
        (replace(ATTACH, iteration=NO_ITERATION - 1), "attach.iteration"),
        (replace(ATTACH, findings=(replace(FINDING, level=Level.OK),)), "attach.findings[0].level"),
        (replace(ATTACH, gpu=replace(GPU, clocks_mhz=(1395, 1410))), "attach.gpu.clocks_mhz"),
        (replace(ATTACH, gpu=replace(GPU, clocks_mhz=(1410, 1410))), "attach.gpu.clocks_mhz"),
        (replace(ATTACH, gpu=replace(GPU, clocks_mhz=(1410, 0))), "attach.gpu.clocks_mhz"),
        (replace(ATTACH, gpu=replace(GPU, clocks_mhz=tuple(range(2000, 900, -1)))), "attach.gpu.clocks_mhz"),
        (replace(ATTACH, gpu=replace(GPU, control="root")), "attach.gpu.control"),
        (replace(ATTACH, gpu=replace(GPU, energy_period_s=inf)), "attach.gpu.energy_period_s"),
        (replace(ATTACH, gpu=replace(GPU, power_limit_w=nan)), "attach.gpu.power_limit_w"),
        (replace(ATTACH, workload=Workload(microbatch_size=-1)), "attach.workload.microbatch_size"),
        (replace(ATTACH, workload=Workload(stage_parameters=(1, -1))), "attach.workload.stage_parameters[1]"),
        (replace(ATTACH, workload=Workload(stage_parameters=(1,) * 5000)), "attach.workload.stage_parameters"),
        (replace(ATTACH, workload=Workload(stage_layers=(1, -1))), "attach.workload.stage_layers[1]"),
        (replace(ATTACH, workload=Workload(stage_layers=(1,) * 5000)), "attach.workload.stage_layers"),
        (replace(ATTACH, target=Target(slowdown=0.99)), "attach.target.slowdown"),
        (replace(ATTACH, target=Target(deadline_s=0.0)), "attach.target.deadline_s"),
        (replace(SAMPLES, sequence=0), "samples.sequence"),
        (replace(SAMPLES, samples=(SAMPLE, replace(SAMPLE, time_s=nan))), "samples.samples[1].time_s"),
        (replace(SAMPLES, samples=(replace(SAMPLE, time_s=0.0),)), "samples.samples[0].time_s"),
        (replace(SAMPLES, samples=(replace(SAMPLE, energy_j=-1.0),)), "samples.samples[0].energy_j"),
        (replace(SAMPLES, samples=(replace(SAMPLE, kind="f"),)), "samples.samples[0].kind"),
        (replace(SAMPLES, samples=(replace(SAMPLE, num_runs=0),)), "samples.samples[0].num_runs"),
        (replace(SAMPLES, samples=(SAMPLE,) * (limits.MAX_SAMPLES + 1)), "samples.samples"),
        (replace(SAMPLES, blocking_power_w=-0.1), "samples.blocking_power_w"),
        (replace(TELEMETRY, iterations=(replace(REPORT, time_s=-inf),)), "telemetry.iterations[0].time_s"),
        (replace(TELEMETRY, iterations=(REPORT,) * (limits.MAX_ITERATIONS + 1)), "telemetry.iterations"),
        (replace(TELEMETRY, iterations=(replace(REPORT, tokens=inf),)), "telemetry.iterations[0].tokens"),
        (replace(TELEMETRY, iterations=(replace(REPORT, tokens=-1.0),)), "telemetry.iterations[0].tokens"),
        (replace(TELEMETRY, iterations=(replace(REPORT, input_wait_s=nan),)), "telemetry.iterations[0].input_wait_s"),
        (replace(TELEMETRY, iterations=(replace(REPORT, input_wait_s=-0.1),)), "telemetry.iterations[0].input_wait_s"),
        (with_kind_times(replace(FORWARD, time_ratio=nan)), "telemetry.iterations[0].kind_times[0].time_ratio"),
        (with_kind_times(replace(FORWARD, time_ratio=0.0)), "telemetry.iterations[0].kind_times[0].time_ratio"),
        (with_kind_times(replace(FORWARD, time_ratio=1001)), "telemetry.iterations[0].kind_times[0].time_ratio"),
        (with_kind_times(replace(FORWARD, requested_mhz=-1)), "telemetry.iterations[0].kind_times[0].requested_mhz"),
        (with_kind_times(replace(FORWARD, kind="STEP")), "telemetry.iterations[0].kind_times[0].kind"),
        (with_kind_times(FORWARD, FORWARD), "telemetry.iterations[0].kind_times"),
        (with_kind_times(*(FORWARD,) * 9), "telemetry.iterations[0].kind_times"),
        (replace(TELEMETRY, iteration=-2), "telemetry.iteration"),
        (replace(TELEMETRY, gpu=GpuSample(requested_mhz=20_001)), "telemetry.gpu.requested_mhz"),
        (replace(TELEMETRY, gpu=GpuSample(power_w=nan)), "telemetry.gpu.power_w"),
        (replace(TELEMETRY, control=""), "telemetry.control"),
        (replace(DRIFT, measured_time_s=inf), "drift.measured_time_s"),
        (replace(DRIFT, clock_mhz=0), "drift.clock_mhz"),
        (replace(DRIFT, chunk=2**31), ""),  # no field of 32 bits holds it
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(message: AgentMessage, field: str) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        encode_agent_message(message)
    assert refused.value.violations[0].field == field


def test_the_receiver_checks_as_well_as_the_sender() -> None:
    wire = pb.AgentMessage.FromString(encode_agent_message(TELEMETRY))
    wire.telemetry.iterations[0].energy_j = nan
    wire.telemetry.trouble = "\x1b[31mred"
    with pytest.raises(InvalidMessageError) as refused:
        decode_agent_message(wire.SerializeToString())
    assert str(refused.value) == (
        "telemetry.iterations[0].energy_j: nan was seen, expected a finite number from 0 to 1e+12; "
        "telemetry.trouble: '\\x1b[31mred' was seen, expected at most 1024 characters, all printable"
    )


def test_free_text_is_cut_to_what_the_other_side_accepts() -> None:
    sent = decode_agent_message(encode_agent_message(replace(TELEMETRY, trouble="line 1\nline 2\x1b" + "x" * 5000)))
    assert isinstance(sent, Telemetry)
    assert sent.trouble.startswith("line 1 line 2 x")
    assert len(sent.trouble) == limits.MAX_SENTENCE_LENGTH


@pytest.mark.parametrize("decode", [decode_agent_message, decode_planner_message])
@pytest.mark.parametrize("data", [b"", b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x00" * 100])
def test_bytes_that_are_no_message_are_refused(decode: Any, data: bytes) -> None:
    with pytest.raises(InvalidMessageError):
        decode(data)


def test_few_of_many_violations_are_told() -> None:
    wire = pb.AgentMessage(samples=pb.ProfileSamples(samples=[pb.Sample(kind="x" * 1000)] * 4000))
    with pytest.raises(InvalidMessageError) as refused:
        decode_agent_message(wire.SerializeToString())
    assert len(refused.value.violations) == MAX_VIOLATIONS
    assert len(str(refused.value)) < 4000


@pytest.mark.parametrize("moments_ns", [(1,), (1, 2, 3), (1, 2, 4, 3), (1, 2, 3, 2**63)])
def test_a_table_whose_moments_do_not_fit_is_refused(moments_ns: tuple[int, ...]) -> None:
    wire = planner_message_to_wire(TABLE)
    wire.table.moments_ns[:] = moments_ns
    with pytest.raises(InvalidMessageError, match=r"table\.moments_ns"):
        decode_planner_message(wire.SerializeToString())


@pytest.mark.parametrize(
    "table",
    [
        pb.PlanTable(num_points=2, num_instructions=3, clocks_mhz=zlib.compress(bytes(11))),
        pb.PlanTable(num_points=2, num_instructions=3, clocks_mhz=zlib.compress(bytes(13))),
        pb.PlanTable(num_points=2, num_instructions=3, clocks_mhz=zlib.compress(bytes(12))[:-1]),
        pb.PlanTable(num_points=2, num_instructions=3, clocks_mhz=b"no zlib"),
        pb.PlanTable(num_points=1 << 20, num_instructions=1 << 20, clocks_mhz=zlib.compress(bytes(12))),
        pb.PlanTable(num_points=-5, num_instructions=7, clocks_mhz=zlib.compress(bytes(12))),
    ],
)
def test_a_table_whose_clocks_do_not_fill_it_is_refused(table: pb.PlanTable) -> None:
    table.revision, table.schedule_digest = 1, RANK.schedule_digest
    table.times_s[:] = table.energies_j[:] = [1.0] * min(table.num_points, 2)
    with pytest.raises(InvalidMessageError, match=r"table\.(clocks_mhz|num_points)"):
        decode_planner_message(pb.PlannerMessage(table=table).SerializeToString())


@pytest.mark.parametrize("base_revision", [4, 5])
def test_a_table_is_based_on_an_earlier_one(base_revision: int) -> None:
    with pytest.raises(InvalidMessageError, match=r"table\.base_revision: \d was seen, expected .* to 3"):
        decode_planner_message(encode_planner_message(replace(TABLE, base_revision=base_revision)))


def test_telemetry_of_agents_that_know_less_is_taken() -> None:
    wire = pb.AgentMessage(telemetry=pb.Telemetry(sequence=1, control="direct", iterations=[pb.IterationReport()]))
    taken = decode_agent_message(wire.SerializeToString())
    assert isinstance(taken, Telemetry)
    (report,) = taken.iterations
    assert (report.kind_times, report.tokens, report.input_wait_s) == ((), 0.0, None)
    assert taken.gpu.requested_mhz == 0


def test_a_table_that_would_decompress_to_gigabytes_takes_no_memory() -> None:
    bomb = zlib.compress(bytes(256 << 20), 9)
    table = pb.PlanTable(num_points=1, num_instructions=1, times_s=[1.0], energies_j=[1.0], clocks_mhz=bomb)
    data = pb.PlannerMessage(table=table).SerializeToString()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidMessageError, match="clocks_mhz"):
            decode_planner_message(data)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_large_table_comes_out_as_it_went_in() -> None:
    num_points, num_instructions = 2000, 1024
    clocks_mhz = random.Random(5).randbytes(num_instructions * 2) * num_points
    numbers = tuple(float(point) for point in range(num_points))
    table = replace(
        TABLE,
        num_points=num_points,
        num_instructions=num_instructions,
        clocks_mhz=clocks_mhz,
        times_s=numbers,
        energies_j=numbers,
    )
    encoded = encode_planner_message(table)
    assert len(encoded) < len(clocks_mhz) / 20
    assert decode_planner_message(encoded) == table


@given(st.data())
def test_any_telemetry_in_range_survives(data: st.DataObject) -> None:
    number = st.floats(0, 1e6)
    count = st.integers(0, limits.MAX_COUNT)
    kind_time = st.builds(
        KindTime,
        kind=st.sampled_from("FBIW"),
        time_ratio=st.floats(limits.MIN_TIME_RATIO, limits.MAX_TIME_RATIO),
        requested_mhz=st.integers(0, limits.MAX_CLOCK_MHZ),
    )
    report = st.builds(
        IterationReport,
        iteration=st.integers(0, limits.MAX_ITERATION),
        time_s=number,
        pipeline_time_s=number,
        energy_j=st.none() | number,
        table_revision=count,
        point=st.integers(-1, limits.MAX_POINTS),
        kind_times=st.lists(kind_time, max_size=4, unique_by=lambda one: one.kind).map(tuple),
        tokens=number,
        input_wait_s=st.none() | number,
    )
    message = data.draw(
        st.builds(
            Telemetry,
            sequence=st.integers(1, limits.MAX_COUNT),
            iterations=st.lists(report, max_size=5).map(tuple),
            gpu=st.builds(GpuSample, power_w=number, clock_mhz=st.integers(0, 20_000)),
            lost_boundaries=count,
            trouble=st.text(max_size=2000),
        )
    )
    again = decode_agent_message(encode_agent_message(message))
    assert isinstance(again, Telemetry)
    assert replace(again, trouble="") == replace(message, trouble="")
