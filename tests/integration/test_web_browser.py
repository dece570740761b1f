"""The page in Chromium: a target set and in force, another's job refused, accessibility, a phone, the keyboard."""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from axe_playwright_python.sync_playwright import Axe
from load_jobs import FINDING, HOST, PP_SIZE, load_jobs
from plan_requests import planning_worker
from planner_process import Planner, planner
from playwright.sync_api import Browser, Page, expect, sync_playwright
from postgres_server import PostgresServer
from waiting import PATIENCE_S, wait_until

from perseus_dist.cli import main
from perseus_dist.rpc.connection import authorization
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub
from perseus_dist.simulation.frameworks.training_run import free_port

CHROMIUM = shutil.which("chromium")
OWN, OTHERS, TOKEN = "llama", "other-token-job", "the other job's token"
NODE = f"node?host={quote(HOST)}"
PHONE = {"width": 390, "height": 844}
# Runs in the page before any of its own scripts: notes what the page's policy refuses.
NOTE_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
# Font sizes of charts' visible text as drawn: charts are scaled to the width of the page.
CHART_TEXT_PX = """
[...document.querySelectorAll("svg.chart text")].filter((text) => text.getClientRects().length).map(
  (text) => parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getScreenCTM().a)
"""

pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: .ci/packages installs it"),
]


def status_of(served: Planner) -> Any:
    with grpc.insecure_channel(served.address) as channel:
        stub = PlannerStub(channel)  # type: ignore[no-untyped-call]
        statuses = stub.ListJobs(pb.ListJobsRequest(), timeout=PATIENCE_S).jobs
    return next((status for status in statuses if status.job_id == OWN), None)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    with ExitStack() as stack:
        running = stack.enter_context(planner(tmp_path_factory.mktemp("web"), "--web", "127.0.0.1:0"))
        stack.enter_context(load_jobs(running.address, OWN))
        stack.enter_context(load_jobs(running.address, OTHERS, token=TOKEN))
        wait_until(lambda: (status := status_of(running)) is not None and status.phase == "enforcing")
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(chromium: Browser, served: Planner, path: str = "", **options: Any) -> Iterator[Page]:
    """A page, which must be without errors and violations of its policy in the end."""
    context = chromium.new_context(base_url=served.told["web_url"], **options)
    context.set_default_timeout(PATIENCE_S * 1e3)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.add_init_script(NOTE_VIOLATIONS)
    page.goto(path)
    yield page
    assert page.evaluate("window.violations") == []
    assert errors == []
    context.close()


def test_a_budget_that_slows_a_job_is_named_beside_its_target(chromium: Browser, served: Planner) -> None:
    reach = ["--planner", served.address, "--token-file", str(served.folder / "state" / "operator-token")]
    main(["policy", "set", "hall", "--job", OWN, "--watts", "1", *reach])  # it cannot be kept, and slows all it can
    with opened(chromium, served, viewport={"width": 1600, "height": 900}) as page:
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=OWN, exact=True))
        expect(row).to_contain_text(re.compile(r"\u00d7 1\.\d{3} by budget hall"))
        page.get_by_role("link", name=OWN, exact=True).click()
        expect(page.locator(".figures")).to_contain_text(re.compile(r"\u00d7 1\.\d{3} by budget hall"))
        page.get_by_role("link", name="Budgets").click()
        expect(page.locator("#budget-hall .findings .tag").first).to_have_text("trouble")
        chart = page.locator("#budget-hall svg.chart")
        expect(chart).to_be_visible()
        # Or its words would be larger than the page's.
        assert chart.evaluate("chart => chart.getBoundingClientRect().width") <= 760
        gap = page.locator(".title + .note").evaluate(
            "note => note.nextElementSibling.getBoundingClientRect().top - note.getBoundingClientRect().bottom"
        )
        assert gap >= 8
        assert main(["policy", "clear", "hall", *reach]) == 0
        page.goto("/")
        expect(row).not_to_contain_text("budget")


def test_a_target_is_looked_at_and_set_from_the_fleet(chromium: Browser, served: Planner) -> None:
    with opened(chromium, served) as page:
        page.get_by_role("link", name=OWN, exact=True).click()
        expect(page.locator("#live")).to_have_text("live")
        before, in_force = status_of(served), page.locator("#target-in-force").inner_text()
        preview = page.locator("#preview").inner_text()
        page.get_by_role("slider").focus()
        page.keyboard.press("End")
        expect(page.locator("#preview")).not_to_have_text(preview)
        expect(page.locator("#looked-at")).to_have_attribute("visibility", "visible")
        assert page.locator("#target-in-force").inner_text() == in_force  # looked at, and not set
        assert status_of(served).target == before.target
        page.get_by_role("button", name="Set target").click()
        expect(page.locator("#answer")).to_contain_text("Set:")
        target = status_of(served).target
        assert target.slowdown > 1
        expect(page.locator("#target-in-force")).to_contain_text(f"{target.slowdown:g}")
        expect(page.locator("#events")).to_contain_text(f"{target.slowdown:g}")


def test_anothers_job_is_refused_until_its_token_is_entered(chromium: Browser, served: Planner) -> None:
    with opened(chromium, served) as page:
        assert OTHERS not in page.content()
        page.goto(f"/jobs/{OTHERS}")
        expect(page.get_by_role("heading", name="Not yours")).to_be_visible()
        expect(page.locator("main")).to_contain_text("another token's")
        page.get_by_role("link", name="Log in").click()
        page.get_by_label("Token").fill("guessed")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("opens no job")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("link", name=OTHERS, exact=True)).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        page.goto(f"/jobs/{OTHERS}")
        expect(page.get_by_role("heading", name="Not yours")).to_be_visible()


def test_a_token_that_may_look_alone_changes_nothing(chromium: Browser, served: Planner) -> None:
    with ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(served.address))
        operator = (served.folder / "state" / "operator-token").read_text().strip()
        request = pb.CreateTokenRequest(name="looker", role="view", jobs=[OTHERS])
        stub = PlannerStub(channel)  # type: ignore[no-untyped-call]
        token = stub.CreateToken(request, timeout=PATIENCE_S, metadata=authorization(operator)).token
        page = stack.enter_context(opened(chromium, served, "login"))
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name=OTHERS, exact=True).click()
        expect(page.locator("#live")).to_have_text("live")
        expect(page.get_by_role("slider")).to_have_count(0)
        before = page.locator("#target-in-force").inner_text()
        forged = """(path) => fetch(path, {method: "POST", body: new URLSearchParams({
            csrf: document.querySelector("input[name=csrf]").value, revision: "1", position: "0"})})
            .then((answer) => answer.status)"""
        assert page.evaluate(forged, f"/jobs/{OTHERS}/target") == 403
        expect(page.locator("#target-in-force")).to_have_text(before)
        page.get_by_role("link", name="Nodes").click()
        page.get_by_role("link", name=HOST).click()
        expect(page.locator("#live")).to_have_text("live")
        expect(page.locator("#node")).to_contain_text(FINDING.remedy)


def test_a_measured_iteration_stands_beside_its_plan_and_has_figures(chromium: Browser, served: Planner) -> None:
    with opened(chromium, served, f"jobs/{OWN}") as page:
        timeline = page.locator("#timeline")
        expect(timeline.get_by_role("img")).to_have_accessible_name(
            re.compile("Planned, table .* Pipeline 1, measured")
        )
        assert timeline.locator(".lane:not(.axis)").count() == 3 * PP_SIZE
        timeline.get_by_text("As a table").click()
        figures = timeline.get_by_role("region", name="Timeline in figures")
        expect(figures).to_contain_text("Pipeline 0, measured in iteration")
        before = figures.inner_text()
        expect(figures).not_to_have_text(before)  # live, and still open
        expect(figures).to_be_visible()


def set_cap(served: Planner, name: str, watts: float) -> None:
    budget = pb.Budget(name=name, watts=watts, objective="total", guard_band=0.05)
    with grpc.insecure_channel(served.address) as channel:
        stub = PlannerStub(channel)  # type: ignore[no-untyped-call]
        stub.SetBudget(pb.SetBudgetRequest(budget=budget), timeout=PATIENCE_S, metadata=operator(served))


def clear_cap(served: Planner, name: str) -> None:
    with grpc.insecure_channel(served.address) as channel:
        stub = PlannerStub(channel)  # type: ignore[no-untyped-call]
        stub.ClearBudget(pb.ClearBudgetRequest(name=name), timeout=PATIENCE_S, metadata=operator(served))


def operator(served: Planner) -> tuple[tuple[str, str], ...]:
    return authorization((served.folder / "state" / "operator-token").read_text().strip())


@pytest.fixture(scope="module")
def budget(served: Planner) -> None:
    set_cap(served, "hall", 1e5)


@pytest.mark.usefixtures("budget")
def test_budgets_and_nodes_are_live_and_the_keyboard_stays_where_it_is(chromium: Browser, served: Planner) -> None:
    with opened(chromium, served, "budgets") as page:
        expect(page.locator("#live")).to_have_text("live")
        link = page.get_by_role("region", name="Power budget hall").get_by_role("link", name=OWN)
        link.focus()
        set_cap(served, "hall", 123_456)
        expect(page.locator("#budgets")).to_contain_text("123,456 W")
        set_cap(served, "basement", 77_777)
        expect(page.get_by_role("heading", name="basement")).to_be_visible()
        clear_cap(served, "basement")
        expect(page.get_by_role("heading", name="basement")).to_have_count(0)
        assert link.evaluate("(element) => document.activeElement === element")
    with ExitStack() as stack:
        page = stack.enter_context(opened(chromium, served, "nodes"))
        expect(page.locator("#live")).to_have_text("live")
        later = stack.enter_context(ExitStack())
        later.enter_context(load_jobs(served.address, "later"))
        expect(page.get_by_role("link", name="later").first).to_be_visible()
        later.close()
        expect(page.get_by_role("link", name="later")).to_have_count(0)


@pytest.mark.usefixtures("budget")
@pytest.mark.parametrize("has_scripts", [True, False], ids=["with-scripts", "without-scripts"])
def test_a_load_target_is_set_and_cancelled(chromium: Browser, served: Planner, *, has_scripts: bool) -> None:
    token = (served.folder / "state" / "operator-token").read_text().strip()
    with opened(chromium, served, "login", java_script_enabled=has_scripts) as page:
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.goto("budgets")
        hall = page.get_by_role("region", name="Power budget hall")
        hall.get_by_text("Set a load target").click()
        hall.get_by_label("Name").fill("peak")
        hall.get_by_label("Power [W]").fill("87654")
        if has_scripts:  # what is typed stays while the section goes on changing
            expect(page.locator("#live")).to_have_text("live")
            set_cap(served, "hall", 98_765)
            expect(hall).to_contain_text("98,765 W")
        expect(hall.get_by_label("Name")).to_have_value("peak")
        hall.get_by_label("End in UTC").fill(f"{datetime.now(UTC) + timedelta(hours=2):%Y-%m-%dT%H:%M}")
        hall.get_by_label("Accept it even if it cannot be met").check()
        found = Axe().run(page) if has_scripts else None
        assert found is None or found.violations_count == 0, found and found.generate_report()
        hall.get_by_role("button", name="Set load target").click()
        expect(hall).to_contain_text("Load target peak: 87,654 W from ")
        found = Axe().run(page) if has_scripts else None
        assert found is None or found.violations_count == 0, found and found.generate_report()
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        if has_scripts:
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        hall.get_by_role("button", name="Cancel load target peak of hall").click()
        expect(hall).not_to_contain_text("Load target peak")
        page.get_by_role("button", name="Log out").click()


@pytest.mark.usefixtures("budget")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "nodes", NODE, "budgets", f"jobs/{OWN}", f"jobs/{OTHERS}", "login"])
def test_axe_finds_no_violation_and_a_phone_scrolls_one_way(
    chromium: Browser, served: Planner, path: str, scheme: str
) -> None:
    with opened(chromium, served, path, color_scheme=scheme) as page:
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert min(page.evaluate(CHART_TEXT_PX), default=8) >= 8
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_the_keyboard_is_enough(chromium: Browser, served: Planner) -> None:
    with opened(chromium, served) as page:
        press_until(page, "Tab", f"document.activeElement.textContent === '{OWN}'")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/jobs/{OWN}")
        expect(page.locator("#live")).to_have_text("live")
        press_until(page, "Tab", "document.activeElement.id === 'position'")
        position = page.get_by_role("slider").input_value()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert page.get_by_role("slider").input_value() == "1" != position
        # Rows and sections go on changing below: focus and position stay.
        iteration = page.locator(".progress").inner_text()
        expect(page.locator(".progress")).not_to_have_text(iteration)
        assert page.evaluate("document.activeElement.id") == "position"
        assert page.get_by_role("slider").input_value() == "1"
        press_until(page, "Tab", "document.activeElement.id === 'apply'")
        page.keyboard.press("Enter")
        expect(page.locator("#answer")).to_contain_text("Set:")
        press_until(page, "Tab", "document.activeElement.name === 'quantity'")
        page.keyboard.press("ArrowRight")
        expect(page.locator(".map.clock")).to_be_visible()
        expect(page.locator(".map.plan")).to_be_hidden()


def press_until(page: Page, key: str, condition: str) -> None:
    for _ in range(40):
        page.keyboard.press(key)
        if page.evaluate(condition):
            return
    raise AssertionError(condition)


def test_the_filter_hides_rows_and_the_page_lives_without_scripts(chromium: Browser, served: Planner) -> None:
    with opened(chromium, served) as page:
        row = page.locator(f"#job-{OWN}")
        page.get_by_label("Filter").fill("enforcing nothing")
        expect(row).to_be_hidden()
        page.get_by_label("Filter").fill(OWN)
        expect(row).to_be_visible()
    with opened(chromium, served, f"jobs/{OWN}", java_script_enabled=False) as page:
        before = status_of(served).switch_revision
        page.get_by_role("slider").press("End")
        page.get_by_role("button", name="Set target").click()
        page.wait_for_url(f"**/jobs/{OWN}")
        assert status_of(served).target.slowdown > 1
        assert status_of(served).switch_revision > before


@pytest.mark.alone  # a replica that is kept from the processor for two seconds loses its jobs to the other
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
def test_jobs_of_another_replica_stand_below_and_lead_to_its_page(
    chromium: Browser, postgres: PostgresServer, tmp_path: Path, scheme: str
) -> None:
    url, port = postgres.url(postgres.fresh_database()), free_port()
    with ExitStack() as stack:

        def replica(host: str) -> Planner:
            (folder := tmp_path / host.strip("[]")).mkdir()
            address = f"{host}:{free_port()}"
            options = ("--store", url, "--bind", address, "--advertise", address, "--web", f"{host}:{port}")
            return stack.enter_context(planner(folder, *options))

        first, second = replica("127.0.0.1"), replica("[::1]")
        stack.enter_context(load_jobs(first.address, "near"))
        stack.enter_context(load_jobs(second.address, "far"))
        stack.enter_context(load_jobs(second.address, "others", token=TOKEN))
        registered = "SELECT job FROM perseus_dist.facts WHERE key = 'job'"
        wait_until(lambda: len(postgres.execute(registered, "fresh")) == 3)
        with opened(chromium, first, color_scheme=scheme) as page:
            link = page.get_by_role("table", name="Jobs at other replicas").get_by_role("link", name="far")
            wait_until(lambda: page.reload() is not None and link.count() == 1)
            assert page.locator("#elsewhere-others").count() == 0, "another's token"
            queue = page.locator("#planning")
            expect(queue).to_contain_text("no planning workers", timeout=PATIENCE_S * 1e3)
            with planning_worker(url, "--workers", "3"):
                expect(queue).to_contain_text("1 planning worker, 3 at once", timeout=PATIENCE_S * 1e3)  # live
            expect(queue).to_contain_text("no planning workers", timeout=PATIENCE_S * 1e3)
            assert page.locator("#job-far, #elsewhere-near").count() == 0
            found = Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
            page.set_viewport_size(PHONE)  # type: ignore[arg-type]
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
            page.get_by_label("Filter").fill("near")
            assert link.is_hidden()
            page.get_by_label("Filter").fill("far")
            link.click()
            page.wait_for_url(f"http://[::1]:{port}/jobs/far")
            expect(page.get_by_role("heading", name="Frontier and target")).to_be_visible()
