"""Transfers between stages that take time: in the profile, the DAG, plans, files and pictures."""

import json
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus_dist.cli.main import main
from perseus_dist.errors import ProfileError
from perseus_dist.messages.from_agent import ProfileSamples, Sample
from perseus_dist.planner.worker.measured_profile import measured_profile
from perseus_dist.planner.worker.plan_request import Contribution
from perseus_dist.planning.baselines.envpipe import envpipe
from perseus_dist.planning.frontier import frontier_file
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.frontier_file import load_frontier, save_frontier
from perseus_dist.planning.frontier.plan import plan_document, plan_for_deadline
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.frontier.slow_rank import SlowRank, with_slow_ranks
from perseus_dist.planning.profile.profile import read_profile, write_profile
from perseus_dist.planning.schedule.dag import build_dag
from perseus_dist.planning.schedule.instruction import (
    NO_MICROBATCH,
    SEND_BACKWARD,
    SEND_FORWARD,
    SENDS,
    Instruction,
    Kind,
    profile_name,
)
from perseus_dist.planning.schedule.schedule import Exchange, Schedule, gpipe, interleaved, joint_exchanges, one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.report.plots.timeline_layout import critical_path, waits
from perseus_dist.report.plots.timeline_plot import plot_timeline
from perseus_dist.report.trace.trace import trace_events
from perseus_dist.rpc.codec import decode_agent_message, encode_agent_message

MS = 10**9  # [ps]
HEADER = "stage,instruction,frequency,time,energy\n"

Times = Mapping[tuple[int, str], int]  # [ms] by stage and kind


def profile_text(num_stages: int, transfers: str = "") -> str:
    """Forward 10 ms and backward 20 ms at 1,400 MHz, 5 % more on each further stage, half as much more at 1,000 MHz."""
    rows = [
        f"{stage},{name},{clock},{ms * (1 + 0.05 * stage) * slower / 1e3:.6f},{watts * ms / 1e3}"
        for stage in range(num_stages)
        for name, ms in (("forward", 10), ("backward", 20))
        for clock, slower, watts in ((1400, 1.0, 300), (1000, 1.5, 240))
    ]
    return HEADER + "\n".join(rows) + "\n" + transfers


def problem(tmp_path: Path, schedule: Schedule, transfers: str = "") -> PlanningProblem:
    path = tmp_path / "profile.csv"
    path.write_text(profile_text(schedule.num_stages, transfers))
    return make_problem(schedule, read_profile(path), blocking_uw_of_rank=[80 * 10**6] * schedule.num_ranks)


def all_transfers(num_stages: int, ms: float) -> str:
    forward = [f"{stage},send_f,,{ms / 1e3},\n" for stage in range(num_stages - 1)]
    backward = [f"{stage},send_b,0,{ms / 1e3},0\n" for stage in range(1, num_stages)]
    return "".join(forward + backward)


def ends_by_hand(schedule: Schedule, times: Times) -> dict[Instruction, int]:
    """When instructions end, by ranks that take turns; written from what frameworks do, without a graph."""
    ends: dict[Instruction, int] = {}
    over: dict[Instruction, int] = {}  # transfers, by what is sent
    has_come: dict[Instruction, dict[int, int]] = {}  # to a transfer, by rank
    link_free: dict[tuple[int, str], int] = {}
    blocks = schedule.num_stages == schedule.num_ranks
    free = [0] * schedule.num_ranks
    plans = [steps_by_hand(schedule, rank) if blocks else [*order] for rank, order in enumerate(schedule.ranks)]
    while any(plans):
        for rank, plan in enumerate(plans):
            while plan:
                at = plan[0]
                if isinstance(at, list):  # a call; those that have come to it say when
                    for one in at:
                        has_come.setdefault(one, {}).setdefault(rank, free[rank])
                    if any(len(has_come[one]) < 2 for one in at):
                        break
                    free[rank] = max(max(has_come[one].values()) + times.get(link_of(one), 0) for one in at)
                elif blocks:
                    free[rank] = ends[at] = free[rank] + times[at.stage, at.kind]
                else:
                    sender = at.stage + (-1 if at.kind == Kind.FORWARD else 1)
                    if 0 <= sender < schedule.num_stages:
                        needed = Instruction(sender, at.kind, at.microbatch)
                        if needed not in over:
                            break
                        free[rank] = max(free[rank], over[needed])
                    free[rank] = ends[at] = free[rank] + times[at.stage, at.kind]
                    over[at] = max(ends[at], link_free.get(link_of(at), 0)) + times.get(link_of(at), 0)
                    link_free[link_of(at)] = over[at]
                plan.pop(0)
    return ends


def link_of(sent: Instruction) -> tuple[int, str]:
    return sent.stage, SEND_FORWARD if sent.kind == Kind.FORWARD else SEND_BACKWARD


def steps_by_hand(schedule: Schedule, rank: int) -> list[Instruction | list[Instruction]]:
    """Instructions of a rank with its calls between them, by what they send and receive."""
    last, order = schedule.num_ranks - 1, schedule.ranks[rank]
    steps: list[Instruction | list[Instruction]] = []
    before: Instruction | None = None
    for one in (*order, None):
        sent = [before] if before and rank != (last if before.kind == Kind.FORWARD else 0) else []
        received = []
        if one and rank != (0 if one.kind == Kind.FORWARD else last):
            received = [Instruction(rank + (-1 if one.kind == Kind.FORWARD else 1), one.kind, one.microbatch)]
        turned = False
        if before and one and before.kind != one.kind and sent and received:
            theirs = schedule.ranks[received[0].stage]
            after = theirs[theirs.index(received[0]) + 1 :][:1]
            turned = after == (Instruction(received[0].stage, before.kind, before.microbatch),)
        steps += [sent + received] if turned else [call for call in (sent, received) if call]
        steps += [one] if one else []
        before = one
    return steps


SCHEDULES = (
    st.builds(one_f_one_b, pp=st.integers(2, 5), microbatches=st.integers(1, 9))
    | st.builds(gpipe, pp=st.integers(2, 4), microbatches=st.integers(1, 5))
    | st.builds(interleaved, pp=st.integers(2, 4), microbatches=st.just(12), chunks=st.integers(2, 3))
)


@settings(max_examples=60, deadline=None)
@given(schedule=SCHEDULES, data=st.data())
def test_executions_are_those_of_ranks_that_wait_and_send(
    tmp_path_factory: pytest.TempPathFactory, schedule: Schedule, data: st.DataObject
) -> None:
    stages = range(schedule.num_stages)
    times: dict[tuple[int, str], int] = {
        (stage, kind): data.draw(st.integers(1, 30)) for stage in stages for kind in (Kind.FORWARD, Kind.BACKWARD)
    }
    links = [(stage, SEND_FORWARD) for stage in stages[:-1]] + [(stage, SEND_BACKWARD) for stage in stages[1:]]
    times |= {link: ms for link in links if (ms := data.draw(st.integers(0, 40)))}
    rows = [
        f"{stage},{profile_name(kind)},{clock},{ms / 1e3},1\n"
        for (stage, kind), ms in times.items()
        for clock in ((1400, 1000) if kind in set(Kind) else (0,))
    ]
    path = tmp_path_factory.mktemp("profile") / "profile.csv"
    path.write_text(HEADER + "".join(rows))
    one = make_problem(schedule, read_profile(path), blocking_uw_of_rank=[0] * schedule.num_ranks)
    played = replay_all_max(one)
    expected = ends_by_hand(schedule, times)
    scheduled = zip(one.dag.instructions[: one.dag.num_scheduled], played.end_ps.tolist(), strict=False)
    assert {instruction: end_ps // MS for instruction, end_ps in scheduled} == expected


def test_a_joint_exchange_begins_when_both_sides_have_come(tmp_path: Path) -> None:
    one = problem(tmp_path, parse_schedule("0F0 0F1+ 0B0 0B1\n1F0+ 1B0 1F1+ 1B1"), all_transfers(2, 7))
    played = replay_all_max(one)
    rows = zip(map(str, one.dag.instructions), played.start_ps.tolist(), strict=True)
    first, second = 30 * MS, int(31.5 * MS)  # forward and backward of each stage
    sent = [10 * MS + 7 * MS]
    sent.append(sent[0] + second + 7 * MS)  # the run 1F0+ 1B0, and its gradient on the way
    sent.append(sent[1] + first + 7 * MS)  # the run 0F1+ 0B0, and its activation
    sent.append(sent[2] + second + 7 * MS)
    assert dict(rows) == {
        "0F0": 0,
        "0SEND_F0": 10 * MS,
        "1F0": sent[0],
        "1B0": sent[0] + 10.5 * MS,
        "1SEND_B0": sent[1] - 7 * MS,
        "0F1": sent[1],
        "0B0": sent[1] + 10 * MS,
        "0SEND_F1": sent[2] - 7 * MS,
        "1F1": sent[2],
        "1B1": sent[2] + 10.5 * MS,
        "1SEND_B1": sent[3] - 7 * MS,
        "0B1": sent[3],
    }


def test_in_a_joint_exchange_the_sender_waits_for_the_receiver(tmp_path: Path) -> None:
    schedule = joint_exchanges(interleaved(pp=2, microbatches=4, chunks=2))
    one = problem(tmp_path, schedule, all_transfers(4, 7))
    played = replay_all_max(one)
    rank_of_stage = schedule.rank_of_stage
    for index in range(one.dag.num_scheduled, one.num_instructions):
        sent = one.dag.instructions[index]
        start_ps, end_ps = int(played.start_ps[index]), int(played.end_ps[index])
        receiver = sent.stage + (1 if sent.kind == SEND_FORWARD else -1)
        for pp_rank in (rank_of_stage[sent.stage], rank_of_stage[receiver]):
            own = (one.dag.pp_rank == pp_rank) & (np.arange(one.num_instructions) < one.dag.num_scheduled)
            assert not ((played.start_ps < end_ps) & (played.end_ps > start_ps))[own].any()


def test_calls_that_would_wait_for_ever_are_none(tmp_path: Path) -> None:
    """The second stage sends its gradient before it asks for more; the first sends all activations first."""
    schedule = parse_schedule("0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2")
    played = replay_all_max(problem(tmp_path, schedule, all_transfers(2, 7)))
    starts = dict(zip(map(str, played.dag.instructions), played.start_ps.tolist(), strict=True))
    assert starts["0F2"] == 2 * (10 + 7) * MS, "the sender goes on when its transfer is over"


def test_a_serial_exchange_takes_longer(tmp_path: Path) -> None:
    batched = one_f_one_b(pp=2, microbatches=3)
    serial = replace(batched, exchange=Exchange.SERIAL)
    both = [replay_all_max(problem(tmp_path, one, all_transfers(2, 7))) for one in (batched, serial)]
    assert both[1].time_ps - both[0].time_ps == 2 * 7 * MS, "of each of the two exchanges, one transfer more"


def test_a_load_comes_after_the_receive(tmp_path: Path) -> None:
    schedule = parse_schedule("0F0 0B0\n1LOAD0 1F0 1B0")
    rows = "1,load,1400,0.003,1\n1,load,1000,0.003,1\n"
    for text, end_ms in ((rows, 10 + 3), (rows + all_transfers(2, 7), 10 + 7 + 3)):
        played = replay_all_max(problem(tmp_path, schedule, text))
        starts = dict(zip(map(str, played.dag.instructions), played.start_ps.tolist(), strict=True))
        assert starts["1F0"] == end_ms * MS
    ahead = parse_schedule("0F0 0B0 0F1 0B1\n1LOAD0 1LOAD1 1F0 1B0 1F1 1B1")
    assert build_dag(ahead).num_scheduled == 10, "loads ahead of a receive wait for nothing"


def test_a_file_from_before_is_replayed_as_it_was_planned(tmp_path: Path) -> None:
    schedule = replace(one_f_one_b(pp=3, microbatches=6), exchange=Exchange.SENDER)
    frontier = plan_frontier(problem(tmp_path, schedule, all_transfers(3, 16)))
    replanned = problem(tmp_path, one_f_one_b(pp=3, microbatches=6), all_transfers(3, 16))
    assert frontier.baseline.time_ps < replay_all_max(replanned).time_ps
    save_frontier(frontier, tmp_path / "sender.npz")
    with np.load(tmp_path / "sender.npz") as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("header").tobytes())
    assert header["schema_version"] == frontier_file.SCHEMA_VERSION
    header |= {"schedule": header["schedule"].replace("# exchange: sender\n", "")}
    del header["sha256"]
    header["sha256"] = frontier_file._digest(header, arrays)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(tmp_path / "before.npz", **arrays)
    again = load_frontier(tmp_path / "before.npz")
    assert again.baseline.time_ps == frontier.baseline.time_ps
    assert again.problem.dag.schedule == schedule
    save_frontier(again, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "sender.npz").read_bytes()
    save_frontier(plan_frontier(replanned), tmp_path / "now.npz")
    assert load_frontier(tmp_path / "now.npz").problem.dag.schedule == replanned.dag.schedule


@pytest.mark.parametrize("schedule", [gpipe(pp=2, microbatches=2), one_f_one_b(pp=2, microbatches=2)])
def test_what_comes_behind_the_last_backward_waits_for_its_send(tmp_path: Path, schedule: Schedule) -> None:
    """torch's pipelining reduces gradients when all that it has sent is over; senders compute meanwhile until then."""
    ranks = [(*order, Instruction(pp_rank, "REDUCE", NO_MICROBATCH)) for pp_rank, order in enumerate(schedule.ranks)]
    deferred = Schedule(ranks=tuple(ranks), exchange=Exchange.DEFERRED)
    reductions = "".join(f"{pp_rank},reduce,1400,0.001,1\n" for pp_rank in range(2))
    frontier = plan_frontier(problem(tmp_path, deferred, all_transfers(2, 7) + reductions))
    dag, played = frontier.problem.dag, frontier.baseline
    at = {str(one): place for place, one in enumerate(dag.instructions)}
    assert played.start_ps[at["1REDUCE"]] == played.end_ps[at["1SEND_B1"]] == played.start_ps[at["0B1"]]
    assert played.start_ps[at["0F1"]] == played.start_ps[at["0SEND_F0"]] == played.end_ps[at["0F0"]]
    assert not dag.on_rank[dag.num_scheduled :].any()
    save_frontier(frontier, tmp_path / "frontier.npz")
    assert load_frontier(tmp_path / "frontier.npz") == frontier


@pytest.mark.parametrize("exchange", [Exchange.OVERLAPPED, Exchange.OVERLAPPED_BACKWARDS])
@pytest.mark.parametrize("transfer_ms", [0, 16])
def test_a_file_from_before_overlap_was_known(tmp_path: Path, exchange: Exchange, transfer_ms: int) -> None:
    """Those of before do not say how exchanges overlap, and stay what they were; newer ones say so by their schema."""
    before = interleaved(pp=3, microbatches=3, chunks=2)
    transfers = all_transfers(6, transfer_ms) if transfer_ms else ""
    old = plan_frontier(problem(tmp_path, before, transfers))
    new = plan_frontier(problem(tmp_path, replace(before, exchange=exchange), transfers))
    assert old.baseline.time_ps < new.baseline.time_ps or not transfer_ms
    for frontier, version in (
        (old, frontier_file.EXCHANGE_VERSION if transfer_ms else frontier_file.SCHEMA_VERSION),
        (new, frontier_file.WAITING_VERSION),
    ):
        save_frontier(frontier, tmp_path / "frontier.npz")
        with np.load(tmp_path / "frontier.npz") as archive:
            assert json.loads(archive["header"].tobytes())["schema_version"] == version
        again = load_frontier(tmp_path / "frontier.npz")
        assert again.problem.dag.schedule == frontier.problem.dag.schedule
        assert again.baseline.time_ps == frontier.baseline.time_ps


def test_no_transfer_in_the_profile_changes_nothing(tmp_path: Path) -> None:
    schedule = one_f_one_b(pp=3, microbatches=4)
    one = problem(tmp_path, schedule)
    assert one.dag.instructions == build_dag(schedule).instructions
    assert one.dag.num_scheduled == one.num_instructions
    assert not one.dag.timed


def test_an_instruction_of_the_schedule_is_no_second_transfer(tmp_path: Path) -> None:
    explicit = parse_schedule("0F0 0SEND_F0 0F1 0SEND_F1 0B0 0B1\n1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1")
    implied = parse_schedule("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1")
    text = all_transfers(2, 7)
    played = [replay_all_max(problem(tmp_path, schedule, text)) for schedule in (explicit, implied)]
    assert played[0].time_ps == played[1].time_ps
    assert played[0].total_uj == played[1].total_uj
    assert not played[0].dag.timed


def test_energy_of_a_transfer(tmp_path: Path) -> None:
    """Blocking power where the profile has none, and what it has otherwise."""
    schedule = one_f_one_b(pp=2, microbatches=3)
    silent, loud = (replay_all_max(problem(tmp_path, schedule, f"0,send_f,0,0.01,{energy}\n")) for energy in ("", "2"))
    assert loud.total_uj - silent.total_uj == 3 * (2_000_000 - 800_000)
    assert silent.energy_uj[-1] == 800_000


def test_plans_keep_their_deadline_and_their_bound(tmp_path: Path) -> None:
    for schedule in (one_f_one_b(pp=4, microbatches=8), interleaved(pp=2, microbatches=8, chunks=2)):
        one = problem(tmp_path, schedule, all_transfers(schedule.num_stages, 6))
        frontier = plan_frontier(one)
        assert (frontier.gaps >= -1e-9).all()
        assert frontier.gaps.mean() < 0.02
        point = frontier.point_for_deadline(frontier.baseline.time_ps)
        played = replay(one, frontier.clock_indices[point])
        assert played.time_ps == frontier.time_ps[point] <= frontier.baseline.time_ps


def test_whoever_knows_of_no_transfer_is_late(tmp_path: Path) -> None:
    """The plan for the last stage's slack, of which transfers between the others take a part."""
    schedule = one_f_one_b(pp=4, microbatches=8)
    blind = plan_frontier(problem(tmp_path, schedule))
    one = problem(tmp_path, schedule, all_transfers(4, 6))
    late = blind.clock_indices[blind.point_for_deadline(blind.baseline.time_ps)]
    late = np.append(late, np.zeros(one.num_instructions - len(late), dtype=np.uint16))
    assert replay(one, late).time_ps > replay_all_max(one).time_ps


@pytest.mark.filterwarnings("error")
def test_a_profile_with_transfers_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem(tmp_path, one_f_one_b(pp=2, microbatches=2), all_transfers(2, 6))
    assert main(["profile", "show", str(tmp_path / "profile.csv"), "--json"]) == 0
    records = json.loads(capsys.readouterr().out)["instructions"]
    (found,) = [one for one in records if (one["stage"], one["instruction"]) == (0, "send_f")]
    assert (found["time_at_max_clock_s"], found["saving_percent"]) == (0.006, 0.0)


def test_baselines_and_slow_ranks_know_them(tmp_path: Path) -> None:
    one = problem(tmp_path, one_f_one_b(pp=3, microbatches=6), all_transfers(3, 6))
    assert replay(one, envpipe(one)).time_ps <= replay_all_max(one).time_ps
    slow = with_slow_ranks(one, [SlowRank(pp_rank=1, factor=2.0)])
    sends = [index for index, i in enumerate(one.dag.instructions) if i.kind == SEND_FORWARD]
    played = replay_all_max(slow)
    assert set((played.end_ps - played.start_ps)[sends].tolist()) == {6 * MS}


@pytest.mark.parametrize("schedule", [one_f_one_b(pp=2, microbatches=3), interleaved(pp=2, microbatches=4, chunks=2)])
def test_files_keep_them(tmp_path: Path, schedule: Schedule) -> None:
    one = problem(tmp_path, schedule, all_transfers(schedule.num_stages, 6))
    frontier = plan_frontier(one)
    save_frontier(frontier, tmp_path / "frontier.npz")
    loaded = load_frontier(tmp_path / "frontier.npz")
    assert loaded.baseline.time_ps == frontier.baseline.time_ps
    assert loaded.problem.dag.instructions == one.dag.instructions
    document = plan_document(plan_for_deadline(loaded, loaded.baseline.time_ps))
    assert [len(rank["instructions"]) for rank in document["ranks"]] == [len(order) for order in schedule.ranks]
    again = tmp_path / "again.csv"
    profile = read_profile(tmp_path / "profile.csv")
    write_profile(profile, again)
    found = read_profile(again).measurements
    assert found.keys() == profile.measurements.keys()
    assert found[0, SEND_FORWARD].times_s.tolist() == [[0.006]]
    assert found[0, SEND_FORWARD].energies_j.tolist() == [[0.0]]


@pytest.mark.parametrize("schedule", [one_f_one_b(pp=2, microbatches=3), interleaved(pp=2, microbatches=4, chunks=2)])
def test_pictures_and_traces(tmp_path: Path, schedule: Schedule) -> None:
    one = problem(tmp_path, schedule, all_transfers(schedule.num_stages, 6))
    played = replay_all_max(one)
    path = critical_path(played)
    assert played.start_ps[path[0]] == 0
    assert (played.end_ps[path[:-1]] == played.start_ps[path[1:]]).all()
    assert any(one.dag.instructions[index].kind in (SEND_FORWARD, SEND_BACKWARD) for index in path)
    rank, start_ps, end_ps = waits(played)
    busy_ps = np.bincount(
        one.dag.pp_rank[one.dag.on_rank], weights=(played.end_ps - played.start_ps)[one.dag.on_rank]
    ) + np.bincount(rank, weights=end_ps - start_ps, minlength=schedule.num_ranks)
    assert busy_ps.tolist() == [played.time_ps] * schedule.num_ranks
    plot_timeline([("all-max", played)]).savefig(BytesIO(), format="svg")
    last_end: dict[tuple[int, int], float] = {}
    events = trace_events([("all-max", played)])
    for event in sorted((one for one in events if one["ph"] == "X"), key=lambda event: event["ts"]):
        track = event["pid"], event["tid"]
        if schedule.sends_block:
            assert event["ts"] >= last_end.get(track, 0.0) - 1e-6
        last_end[track] = event["ts"] + event["dur"]
    transfers = [event for event in events if event.get("cat") == "transfer"]
    assert bool(transfers) != schedule.sends_block


@pytest.mark.parametrize(
    ("row", "seen"),
    [
        ("0,forward,,0.01,1", "column 'frequency': saw ''"),
        ("0,forward,1400,0.01,0", "column 'energy': saw '0'"),
        ("0,send_f,-1,0.01,0", "column 'frequency': saw '-1'"),
        ("0,send_f,0,0,0", "column 'time': saw '0'"),
        ("1,send_f,0,0.01,0", "expected an instruction that the schedule runs on stage 1"),
        ("0,send_b,0,0.01,0", "expected an instruction that the schedule runs on stage 0"),
    ],
)
def test_what_is_no_transfer_is_refused(tmp_path: Path, row: str, seen: str) -> None:
    with pytest.raises(ProfileError) as caught:
        problem(tmp_path, one_f_one_b(pp=2, microbatches=2), row + "\n")
    assert seen in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_saved_profile_brings_its_transfers_to_the_planner() -> None:
    """Those between pp_ranks of this job's schedule, and no others."""

    def sample(stage: int, kind: str, clock_mhz: int, time_s: float) -> Sample:
        return Sample(
            chunk=0,
            kind=kind,
            clock_mhz=clock_mhz,
            time_s=time_s,
            energy_j=0.0 if kind in SENDS else 1.0,
            time_std_s=0.0,
            energy_std_j=0.0,
            num_runs=1,
            window_s=0.0,
            stage=stage,
        )

    computations = [sample(stage, kind, clock, 0.01) for stage in (0, 1) for kind in "FB" for clock in (1400, 1000)]
    transfers = [sample(0, SEND_FORWARD, 0, 0.006), sample(1, SEND_BACKWARD, 0, 0.007), sample(1, SEND_FORWARD, 0, 1.0)]
    profile = measured_profile(
        one_f_one_b(pp=2, microbatches=2),
        [Contribution(pp_rank=0, tp_rank=0, samples=tuple(computations + transfers))],
        tensor_parallel=1,
        blocking_power_w=[80, 80],
        source="profile of job test",
    )
    sends = {key: float(found.times_s[0, 0]) for key, found in profile.measurements.items() if key[1] in SENDS}
    assert sends == {(0, SEND_FORWARD): 0.006, (1, SEND_BACKWARD): 0.007}
    wire = encode_agent_message(ProfileSamples(sequence=1, sweep_id=0, step=0, samples=tuple(transfers)))
    assert decode_agent_message(wire) == ProfileSamples(sequence=1, sweep_id=0, step=0, samples=tuple(transfers))
