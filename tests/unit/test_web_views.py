"""The page's documents: targets on the slider, charts, maps, progress, words."""

import zlib
from array import array
from dataclasses import replace
from typing import Any

import pytest
from test_planner_budgets import HALL, PEAK, demand

from perseus_dist.messages.finding import Finding, Level
from perseus_dist.messages.from_agent import GpuSample
from perseus_dist.messages.job_status import Straggler
from perseus_dist.messages.terms import NO_POINT, T_MIN, Gpu, Rank, Target
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Grant, Role
from perseus_dist.planner.budget.history import PowerHistory
from perseus_dist.planner.budget.price_follower import PricedJob
from perseus_dist.planner.budget.price_policies import PriceState
from perseus_dist.planner.budget.sharing import share_budget
from perseus_dist.planner.job.facts.decisions import SwitchDecided
from perseus_dist.planner.job.facts.policies import PricePolicySet
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.membership import RankState
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.job.state.progress import Pipeline
from perseus_dist.planner.lifecycle.enforcement.plan_choice import deadline_ps
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.runtime.nodes import ConnectedNode, ConnectedNodes
from perseus_dist.planner.web.fragments import make_templates
from perseus_dist.planner.web.views import wording
from perseus_dist.planner.web.views.budgets import budget_document, price_document
from perseus_dist.planner.web.views.fleet import fleet_row
from perseus_dist.planner.web.views.frontier_chart import target_choices
from perseus_dist.planner.web.views.heat_map import PlanKey, PlanRows, heat_maps, planned_clocks
from perseus_dist.planner.web.views.nodes import node_document, nodes_document
from perseus_dist.rpc.v1 import planner_pb2 as pb

MS = 10**9  # [ps]
SUMMARY = FrontierSummary(
    time_ps=(90 * MS, 100 * MS, 101 * MS, 102 * MS + 7, 110 * MS, 130 * MS),
    total_uj=(50, 45, 46, 40, 30, 35),
    lower_bound_uj=(49, 44, 43, 39, 29, 28),
    baseline_time_ps=100 * MS,
    baseline_uj=60,
    total_blocking_uw=1,
)


def test_the_slider_offers_each_plan_that_draws_less_up_to_the_least() -> None:
    choices = target_choices(SUMMARY, dp_size=2)
    assert [choice.point for choice in choices] == [1, 3, 4]
    assert choices[0].target == T_MIN
    assert [choice.energy_j for choice in choices] == pytest.approx([90e-6, 80e-6, 60e-6])
    assert choices[2].saved == pytest.approx(0.5)
    for choice in choices:
        assert SUMMARY.point_for_deadline(deadline_ps(choice.target, SUMMARY)) == choice.point


def test_of_plans_that_no_slowdown_tells_apart_the_slider_has_the_last() -> None:
    near = replace(SUMMARY, time_ps=(90 * MS, 100 * MS, 101 * MS, 102 * MS + 1, 102 * MS + 2, 130 * MS))
    assert [choice.point for choice in target_choices(near, dp_size=1)] == [1, 4]


def test_a_frontier_faster_than_full_clocks_and_one_of_a_single_plan() -> None:
    fast = replace(SUMMARY, baseline_time_ps=200 * MS)
    assert [choice.target for choice in target_choices(fast, dp_size=1)] == [T_MIN]
    one = replace(SUMMARY, time_ps=(100 * MS,), total_uj=(45,), lower_bound_uj=(44,))
    assert len(target_choices(one, dp_size=1)) == 1


def test_planned_clocks_are_means_of_the_row_in_force() -> None:
    clocks = array("H", [1410, 0, 1410, 1000, 0, 1100])  # two rows of three instructions, one without a clock
    table = pb.PlanTable(num_points=2, num_instructions=3, clocks_mhz=zlib.compress(clocks.tobytes()))
    encoded = pb.PlannerMessage(table=table).SerializeToString()
    rows = PlanRows(key=PlanKey(()), rows=((0, (encoded,), 1), (1, (encoded,), 0), (2, (encoded,), 9)))
    assert planned_clocks(rows) == {(0, 0): 1050.0, (1, 0): 1410.0}


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (wording.seconds(0.5), "500.0 ms"),
        (wording.seconds(2.83653), "2.837 s"),
        (wording.seconds(0.0), wording.NOT_KNOWN),
        (wording.joules(1.5e6, 2e4), "1.50 ± 0.02 MJ"),
        (wording.percent(-0.0521), "\N{MINUS SIGN}5.2 %"),
        (wording.percent(-0.0001), "0.0 %"),
        (wording.span(5400), "2 h"),
        (wording.target_words(Target(deadline_s=2.5)), "2.5 s"),
    ],
)
def test_numbers_have_their_unit(shown: str, expected: str) -> None:
    assert shown == expected


def attached(number: int, **other: Any) -> RankState:
    place: dict[str, Any] = {"pp_rank": number, "dp_rank": 0, "tp_rank": 0, "pp_size": 4, "dp_size": 1, "tp_size": 1}
    gpu = Gpu(uuid=f"GPU-{number}", name="A100", driver_version="550", clocks_mhz=(1410, 1395), control="clockd")
    fields = {
        "rank": Rank(job_id="llama", rank=number, schedule_digest="0", **place),
        "gpu": replace(gpu, power_limit_w=400.0, default_power_limit_w=400.0),
        "incarnation": 1,
        "stream": number,
        "has_profile": False,
        "version": "0",
        "control": "clockd",
        "host": "b" if number % 2 else "a",
    }
    return RankState(**{**fields, **other})


@pytest.mark.parametrize(
    ("point", "shown"), [(SUMMARY.full_point, "1410"), (2, wording.NOT_KNOWN), (NO_POINT, wording.NOT_KNOWN)]
)
def test_a_pipeline_that_is_planned_at_full_clocks_shows_them(point: int, shown: str) -> None:
    """Beside a straggler whose own plan is not there yet; the other pipeline follows a row of the table."""
    job = Job(job_id="llama", policy=Policy(), phase=Phase.ENFORCING, reason="")
    job.spec = JobRegistered(schedule_digest="", pp_size=1, dp_size=2, tp_size=1, token_sha256="")
    job.progress.pipelines = [Pipeline(), Pipeline()]
    job.members.ranks = {rank: attached(rank) for rank in range(2)}
    for rank, state in job.members.ranks.items():
        state.rank = replace(state.rank, pp_rank=0, dp_rank=rank, pp_size=1, dp_size=2)
    job.plan = JobPlan(revision=1, summary=SUMMARY, tables=(b"",), profile_csv=b"")
    job.enforcement.switch = SwitchDecided(
        table_revision=1, switch_revision=1, effective_iteration=3, points=(point, 1), reason=""
    )
    (plan,) = [one for one in heat_maps(job, {(1, 0): 1005.0})["maps"] if one["name"] == "plan"]
    assert [row[0][0] for row in plan["rows"]] == [shown, "1005"]


def test_nodes_say_who_sets_clocks_and_what_is_limited() -> None:
    job = Job(job_id="llama", policy=Policy(), phase=Phase.ENFORCING, reason="")
    job.members.ranks = {number: attached(number) for number in range(4)}
    capped, refused = job.members.ranks[0], job.members.ranks[1]
    capped.gpu = replace(capped.gpu, power_limit_w=250.0, power_profiles="max-q")
    capped.gpu_reading = GpuSample(clock_mhz=900, event_reasons=0x20)
    refused.gpu, refused.control = replace(refused.gpu, clocks_mhz=(), refusal="no clockd here"), "observe"
    job.members.ranks[3].stream = None  # not attached
    job.members.ranks[2].host = ""
    document = nodes_document([job], [])
    first, second, unnamed = document["nodes"]
    assert (first["host"], second["host"], unnamed["host"]) == ("a", "b", "not named")
    assert first["gpus"][0]["limits"] == "power limit 250 W of 400 W; power profile max-q; slowed by heat"
    assert (second["findings"], second["num_leased"]) == (["no clockd here"], 0)
    assert (len(unnamed["gpus"]), unnamed["num_leased"], document["num_left_out"]) == (1, 1, 0)


def test_a_node_that_all_ranks_have_left_stands_with_their_job() -> None:
    job = Job(job_id="llama", policy=Policy(), phase=Phase.ENFORCING, reason="")
    job.members.ranks = {number: attached(number) for number in range(4)}  # the odd ones on node b
    job.members.ranks[0].stream = job.members.ranks[1].stream = job.members.ranks[3].stream = None
    document = nodes_document([job], [])
    assert [(node["host"], len(node["gpus"]), [*node["left"]]) for node in document["nodes"]] == [
        ("a", 1, []),
        ("b", 0, ["llama"]),
    ]
    shown = make_templates().get_template("section_nodes.html").render(document)
    assert 'No rank is attached there now. Ranks of <a href="/jobs/llama">llama</a> were.' in shown
    job.members.begin_run()
    assert [node["host"] for node in nodes_document([job], [])["nodes"]] == ["a"]


def test_a_node_whose_gpus_are_left_out_is_not_shown_as_one_without_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_dist.planner.web.views.nodes.MAX_GPUS", 1)
    job = Job(job_id="llama", policy=Policy(), phase=Phase.ENFORCING, reason="")
    slow = Finding(level=Level.WARN, subject="GPU-1", what="power cap", remedy="leave it")
    job.members.ranks = {0: attached(0), 1: attached(1, findings=(slow,)), 3: attached(3, stream=None)}
    relay = ConnectedNode(host="b", findings=(), relay=Caller(token_sha256="", is_operator=False))
    document = nodes_document([job], [relay])
    assert [(node["host"], len(node["gpus"]), node["num_findings"]) for node in document["nodes"]] == [
        ("a", 1, 0),
        ("b", 0, 1),
    ]
    section = make_templates().get_template("section_nodes.html").render(document)
    assert "Its GPUs are not shown. Its node relay is connected." in section
    assert "1 more GPUs are not shown." in section
    assert "No rank is attached there now." not in section


def test_a_node_whose_gpus_are_left_out_takes_no_place_of_those_without_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("MAX_GPUS", "MAX_IDLE"):
        monkeypatch.setattr(f"perseus_dist.planner.web.views.nodes.{bound}", 1)
    job = Job(job_id="llama", policy=Policy(), phase=Phase.ENFORCING, reason="")
    job.members.ranks = {0: attached(0), 1: attached(1)}  # the second one on node b
    caller = Caller(token_sha256="", is_operator=False)
    document = nodes_document([job], [ConnectedNode(host=host, findings=(), relay=caller) for host in "bz"])
    assert [node["host"] for node in document["nodes"]] == ["a", "b", "z"]
    assert document["num_idle_left_out"] == 0
    assert [node["host"] for node in nodes_document([job], [])["nodes"]] == ["a", "b"], "with a relay or without"


def test_nodes_without_ranks_are_there_while_their_relay_is() -> None:
    job = Job(job_id="llama", policy=Policy(), phase=Phase.ENFORCING, reason="")
    job.members.ranks = {0: attached(0)}  # on node a
    trouble = Finding(level=Level.WARN, subject="clockd", what="does not answer", remedy="restart clockd")
    relays = [
        ConnectedNode(host=host, findings=(trouble,), relay=Caller(token_sha256="", is_operator=False, uid=uid))
        for host, uid in (("c", 1000), ("a", 1000), ("b", 1001))
    ]
    document = nodes_document([job], relays)
    assert [(node["host"], len(node["gpus"]), node["num_findings"]) for node in document["nodes"]] == [
        ("a", 1, 1),
        ("b", 0, 1),
        ("c", 0, 1),
    ]
    shown = make_templates().get_template("section_nodes.html").render(document)
    assert shown.count("Its node relay is connected.") == 2
    section = make_templates().get_template("section_node.html").render(node_document([job], relays, "c"))
    assert "restart clockd" in section
    assert "of the node relay" in section
    known = ConnectedNodes()
    for number, node in enumerate(relays):
        assert known.put(number, node)
    own = Caller(token_sha256="", is_operator=False, uid=1001)
    everything = Grant(name="dashboard", role=Role.VIEW, created_s=0.0, created_by="operator")
    some = Caller(token_sha256="1", is_operator=False, grants=(replace(everything, jobs=("llama*",)),))
    assert [node.host for node in known.visible(own)] == ["b"]
    assert known.visible(some) == []
    assert len(known.visible(replace(some, grants=(everything,)))) == 3
    assert len(known.visible(replace(own, is_operator=True))) == 3
    known.remove(2)
    assert known.visible(own) == []


def test_a_price_policy_says_why_each_job_is_at_its_pace() -> None:
    policy = PricePolicySet(name="cheap", jobs=("a", "b", "c"), signal="day.csv", deadline_s=1.8e9, iterations=100)
    jobs = (
        PricedJob(job_id="a", done=40, left=60, pace=1.1, finish_s=1.79e9),
        PricedJob(job_id="b", done=4, left=96, reason="at its own target, to be in time"),
        PricedJob(job_id="c", done=0, left=100),
    )
    document = price_document(PriceState(policy=policy, trouble="", jobs=jobs), {"a", "b"}, {})
    assert [(job.job_id, *rest) for job, *rest in document["jobs"]] == [
        ("a", "2026-09-21 14:13 UTC", "slower than its target"),
        ("b", "", "at its own target, to be in time"),
    ]
    assert (document["num_hidden"], document["deadline"]) == (1, "2027-01-15 08:00 UTC")
    slowed = price_document(PriceState(policy=policy, trouble="", jobs=jobs), {"a"}, {"a": "hall"})
    assert slowed["jobs"][0][2] == "slowed by the budget hall"


def test_a_nodes_findings_are_told_once_failures_first() -> None:
    job = Job(job_id="llama", policy=Policy(), phase=Phase.ENFORCING, reason="")
    job.members.ranks = {number: attached(number) for number in range(6)}  # the even ones on node a
    cap = Finding(level=Level.WARN, subject="GPU-0", what="power cap", remedy="leave it")
    driver = Finding(level=Level.FAIL, subject="driver", what="does not answer", remedy="look at dmesg")
    job.members.ranks[0].findings = (cap, driver)
    job.members.ranks[2].findings = (driver,)
    job.members.ranks[1].findings = (cap,)
    job.members.ranks[4].stream, job.members.ranks[4].findings = None, (replace(cap, subject="gone"),)
    document = node_document([job], [], "a")
    assert document["findings"] == [(driver, ["llama rank 0", "llama rank 2"]), (cap, ["llama rank 0"])]
    assert [gpu["rank"] for gpu in document["gpus"]] == [0, 2]
    assert [node["num_findings"] for node in nodes_document([job], [])["nodes"]] == [2, 1]
    assert node_document([job], [], "elsewhere")["gpus"] == []
    section = make_templates().get_template("section_node.html").render(node_document([job], [], "a"))
    assert section.index("look at dmesg") < section.index("leave it")


def test_a_budget_is_drawn_where_its_power_is_known() -> None:
    demands = [demand("a", measured_w=81.0), demand("b", measured_w=99.0)]
    history = PowerHistory()
    for second in range(4):
        known = demands if second != 2 else [*demands, demand("c")]
        state = share_budget(HALL, (180.0 if second else None, ""), known)
        history.add([state], 1e9 + second)
        history.add([state], 1e9 + second + 0.5)
    document = budget_document(state, history.of("hall"), {"a"})
    chart = document["chart"]
    assert [share.demand.job_id for share in document["shares"]] == ["a"]
    assert document["num_hidden"] == 1
    assert [line.count(",") for line in chart["cap"]] == [3]
    assert [line.count(",") for line in chart["planned"]] == [4]
    assert [line.count(",") for line in chart["measured"]] == [2, 1]
    assert chart["cap"][0].split()[-1] == "624,43.3", "at the right, 180 of 1.08 x 200 W up"
    assert [text for _, text in chart["y_ticks"]] == ["0", "50", "100", "150", "200"]
    assert document["slowdown"] == pytest.approx((10.0, 10.0)), "one of the two gives 20 W"
    later = (replace(PEAK, start_s=1e9 + 60, end_s=1e9 + 120), replace(PEAK, name="next", start_s=1e9 + 180, end_s=2e9))
    assert budget_document(state, history.of("hall"), {"a"}, later)["load_targets"] == [
        ("peak", 180.0, "2001-09-09 01:47 UTC", "2001-09-09 01:48 UTC", False),
        ("next", 180.0, "2001-09-09 01:49 UTC", "2033-05-18 03:33 UTC", False),
    ]
    history.add([], 1e9 + 5)
    assert history.of("hall") == []
    assert budget_document(state, history.of("hall"), {"a"})["chart"] is None


def test_a_budget_is_drawn_in_its_picture_after_the_clock_was_set_back() -> None:
    state, history = share_budget(HALL, (180.0, ""), [demand("a", measured_w=81.0)]), PowerHistory()
    for second in (0, 1, 3600, 3601, 2, 3):
        history.add([state], 1e9 + second)
    assert [sample.at_s - 1e9 for sample in history.of("hall")] == [0, 1, 2, 3]
    chart = budget_document(state, history.of("hall"), {"a"})["chart"]
    assert chart["minutes"] == pytest.approx(0.05)
    places = [float(point.partition(",")[0]) for point in chart["planned"][0].split()]
    assert chart["plot"]["left"] <= min(places) < max(places) == chart["plot"]["right"]


def test_a_job_with_a_straggler_shows_its_troubles_too() -> None:
    job = Job(job_id="llama", policy=Policy(), phase=Phase.ENFORCING, reason="")
    reported = Straggler(straggler_id="r7", dp_rank=1, degree=1.2)
    status = replace(job_status(job), stragglers=(reported,), troubles=("the plan is late",))
    row = make_templates().get_template("row.html").render(fleet_row(job, status))
    assert "1, up to\u00a0\u00d7\u00a01.200" in row
    assert "trouble" in row
    row = make_templates().get_template("row.html").render(fleet_row(job, replace(status, troubles=())))
    assert "trouble" not in row
