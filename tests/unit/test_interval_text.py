"""Intervals of percentages in words, as page, commands, report and plan tables show them."""

from types import SimpleNamespace

import pytest

from perseus_dist.cli.jobs.job_view import format_jobs
from perseus_dist.interval_text import interval_text
from perseus_dist.library.plan_table import plan_interval_text
from perseus_dist.planner.web.fragments import make_templates
from perseus_dist.planning.frontier.saving_interval import ErrorsKnownBy, SavingInterval
from perseus_dist.rpc.job_status_wire import decode_job_status
from perseus_dist.rpc.v1 import planner_pb2 as pb


@pytest.mark.parametrize(
    ("low", "high", "decimals", "text"),
    [
        (8.0, 9.5, 1, "8.0 to 9.5"),
        (9.46, 9.54, 1, "about 9.5"),
        (9.46, 9.54, 2, "9.46 to 9.54"),
        (-0.04, 0.04, 1, "about 0.0"),
        (-0.04, 0.06, 1, "0.0 to 0.1"),
        (-1.26, -1.24, 1, "-1.3 to -1.2"),
    ],
)
def test_an_interval_below_its_rounding_is_one_number(low: float, high: float, decimals: int, text: str) -> None:
    assert interval_text(low, high, decimals) == text


def test_no_reader_sees_an_interval_with_equal_ends() -> None:
    status = pb.JobStatus(
        job_id="llama",
        phase="enforcing",
        table_revision=1,
        predicted_saving=0.095,
        predicted_saving_low=0.0946,
        predicted_saving_high=0.0954,
    )
    assert "the plan is likely to save about 9.5 %" in " ".join(format_jobs([status]).split())
    interval = SavingInterval(low=0.0946, high=0.0954, known_by=ErrorsKnownBy.SAMPLES)
    assert plan_interval_text(interval) == "about 9.5"
    figures = make_templates().get_template("section_figures.html")
    html = figures.render(status=status, time_s=0.0, against_baseline=None, slowed="", attached=0)
    assert "likely about 9.5 %" in html


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(0.0946, 0.0954, "9.5 % predicted"), (0.0936, 0.0944, "9.5 % (about 9.4 %) predicted"), (0, 0, "9.5 % predicted")],
)
def test_a_row_of_the_page_says_a_saving_once(low: float, high: float, text: str) -> None:
    status = pb.JobStatus(
        job_id="llama",
        phase="enforcing",
        table_revision=1,
        predicted_saving=0.095,
        predicted_saving_low=low,
        predicted_saving_high=high,
        target=pb.Target(t_min=True),
    )
    row = make_templates().get_template("row.html")
    html = row.render(
        status=decode_job_status(status.SerializeToString()),
        phase="enforcing",
        attached=0,
        progress=SimpleNamespace(share=None, text="", left_s=None),
        time_s=0.0,
        against_baseline=None,
        slowed="",
        num_stragglers=0,
        worst=1.0,
        has_trouble=False,
    )
    assert f"<small>{text}</small>" in html
