"""Two planners as replicas on one PostgreSQL database: jobs spread, calls sent on, and one of them killed."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psycopg
import pytest
from node_relay import RelayedRank, node_relay, num_connections, port_of
from plan_requests import planning_worker
from planner_process import Planner, planner
from postgres_server import PostgresServer
from waiting import wait_until

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from load_agent import LoadAgent, LoadJob

from perseus_dist.cli.main import main
from perseus_dist.planner.access.private_file import write_private
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.frameworks.training_run import free_port

PATIENCE_S = 60.0
JOBS = tuple(f"job-{number}" for number in range(4))


@contextmanager
def replica(folder: Path, url: str, address: str, *options: str) -> Iterator[Planner]:
    folder.mkdir(exist_ok=True)
    with planner(folder, "--store", url, "--bind", address, "--advertise", address, *options) as running:
        yield running


def log_of(running: Planner) -> str:
    """All that a replica has said, which ends it."""
    running.end()
    assert running.process.stderr is not None
    return running.process.stderr.read()


def owners(postgres: PostgresServer) -> dict[str, tuple[str, int]]:
    """By job, its living owner's address and the epoch."""
    rows = postgres.execute(
        "SELECT job, address, epoch FROM perseus_dist.leases JOIN perseus_dist.planners ON number = planner "
        "WHERE job <> '' AND alive_until > now()",
        "fresh",
    )
    return {job: (address, epoch) for job, address, epoch in rows}


async def until(condition: Callable[[], bool]) -> float:
    """Wait for it; how long that took [s]."""
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() < began_s + PATIENCE_S
        await asyncio.sleep(0.02)
    return time.monotonic() - began_s


def planning_processes(running: Planner) -> list[int]:
    """Process ids."""
    pid = running.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if "planning_worker" in Path(f"/proc/{child}/cmdline").read_text()]


def started(job_id: str, addresses: str) -> list[LoadAgent]:
    job = LoadJob(job_id=job_id, schedule=one_f_one_b(pp=2, microbatches=2), dp_size=1)
    return [LoadAgent(job=job, rank=rank, address=addresses) for rank in job.ranks()]


def test_jobs_of_a_killed_replica_go_on_at_the_other(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.url(postgres.fresh_database())
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))

    def run(*words: str) -> str:
        assert main([*words, "--planner", f"{second},{first}"]) == 0
        return capsys.readouterr().out

    def targets() -> dict[str, float]:
        return {job["job_id"]: job["target"]["slowdown"] for job in json.loads(run("jobs", "--json"))["jobs"]}

    wanted = {job_id: 1.1 + number / 100 for number, job_id in enumerate(JOBS)}

    async def play(dying: Planner) -> None:
        agents: list[LoadAgent] = []
        for number, job_id in enumerate(JOBS):
            agents += started(job_id, f"{first},{second}" if number % 2 else f"{second},{first}")
        running = [asyncio.create_task(agent.run()) for agent in agents]
        try:
            await until(lambda: all(agent.attached.is_set() for agent in agents))
            before = owners(postgres)
            assert {address for address, _ in before.values()} == {first, second}
            for job_id in JOBS:
                await asyncio.to_thread(run, "target", job_id, "--slowdown", str(wanted[job_id]))
            assert await asyncio.to_thread(targets) == wanted
            dying.end(signal.SIGKILL)
            await until(lambda: {address for address, _ in owners(postgres).values()} == {second})
            await until(lambda: len(owners(postgres)) == len(JOBS))
            await until(lambda: all(agent.attached.is_set() for agent in agents))
            after = owners(postgres)
            for job_id, (address, epoch) in before.items():
                assert after[job_id][1] == epoch if address == second else after[job_id][1] > epoch
            assert await asyncio.to_thread(targets) == wanted
        finally:
            for task in running:
                task.cancel()
            with suppress(TimeoutError):
                await asyncio.wait(running, timeout=10)

    with replica(tmp_path / "first", url, first) as dying, replica(tmp_path / "second", url, second):
        asyncio.run(play(dying))


def one_operator(folder: Path) -> list[str]:
    """An operator's token that both replicas have; the options of commands with it."""
    for name in ("first", "second"):
        (folder / name / "state").mkdir(parents=True, mode=0o700)
        write_private(folder / name / "state" / "operator-token", "an-operator\n")
    return ["--token-file", str(folder / "first" / "state" / "operator-token")]


@pytest.mark.stress
def test_the_audit_record_of_one_replica_has_what_all_have_recorded(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of one that is gone; while the database is away, each has its own, and says so."""
    url = postgres.url(postgres.fresh_database())
    addresses = first, second = tuple(f"127.0.0.1:{free_port()}" for _ in range(2))
    options = one_operator(tmp_path)

    def run(*words: str) -> str:
        assert main([*words, *options]) == 0
        return capsys.readouterr().out

    def recorded(address: str, *words: str) -> list[tuple[str, str, str]]:
        records = [json.loads(line) for line in run("audit", "--json", "--planner", address, *words).splitlines()]
        return [(record["action"], record["after"].split(":")[0], record["replica"]) for record in records]

    with replica(tmp_path / "second", url, second):
        with replica(tmp_path / "first", url, first) as ends:
            for name, address in zip(("one", "two"), addresses, strict=True):
                run("token", "create", name, "--role", "view", "--planner", address, "--out", str(tmp_path / name))
            all_of = {("CreateToken", f"token {name}", at) for name, at in zip(("one", "two"), addresses, strict=True)}
            for address in addresses:
                wait_until(lambda address=address: {*recorded(address)} == all_of)  # type: ignore[misc]
            assert first in run("audit", "--planner", second)
            run("token", "create", "last", "--role", "view", "--planner", first, "--out", str(tmp_path / "last"))
            assert ends.end() == 0
        assert ("CreateToken", "token last", first) in recorded(second)
        assert recorded(second, "--job", "none") == []
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            postgres.execute("TRUNCATE perseus_dist.audit", "fresh")
        with replica(tmp_path / "first", url, first):
            run("token", "revoke", "one", "--planner", first)
            assert [action for action, *_ in recorded(first)].count("CreateToken") == 3  # none is sent twice
            postgres.stop()
            try:
                assert {replica for *_, replica in recorded(first)} == {""}
                assert main(["audit", "--planner", first, *options]) == 0
                assert "only what this planner has recorded" in capsys.readouterr().err
            finally:
                postgres.start()
            wait_until(lambda: ("RevokeToken", "", first) in recorded(second))


@pytest.mark.stress
def test_named_tokens_are_made_and_revoked_for_all_replicas(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also for one that was away; while the database is, none is made, and a revocation is made up for."""
    url = postgres.url(postgres.fresh_database())
    addresses = first, second = tuple(f"127.0.0.1:{free_port()}" for _ in range(2))
    options = one_operator(tmp_path)

    def token(*words: str, at: str, code: int = 0) -> str:
        assert main(["token", *words, "--planner", at, *options]) == code
        told = capsys.readouterr()
        return told.err if code else told.out

    def make(name: str, at: str, code: int = 0, role: str = "admin") -> str:
        return token("create", name, "--role", role, "--out", str(tmp_path / f"{name}.token"), at=at, code=code)

    def counts(name: str, at: str) -> bool:
        code = main(["token", "list", "--planner", at, "--token-file", str(tmp_path / f"{name}.token")])
        told = capsys.readouterr()
        assert not code or "was revoked" in told.err or "cannot be" in told.err or "unknown" in told.err, told.err
        return code == 0

    with replica(tmp_path / "second", url, second):
        with replica(tmp_path / "first", url, first) as ends:
            for name, address in (("one", first), ("two", second), ("three", first)):
                make(name, address)
            for name in ("one", "two", "three"):
                assert [grant["name"] for grant in json.loads(token("list", "--json", at=second))["tokens"]] == [
                    *("one", "three", "two")
                ]
                for address in addresses:
                    wait_until(lambda name=name, address=address: counts(name, address))  # type: ignore[misc]
            make("elsewhere", first)
            assert "choose another name" in token("create", "elsewhere", "--role", "view", at=second, code=2)
            token("revoke", "two", at=first)  # made at the other
            wait_until(lambda: not counts("two", second))
            assert not counts("two", first)
            assert ends.end() == 0
        token("revoke", "one", at=second)
        with replica(tmp_path / "first", url, first):
            assert not counts("one", first), "revoked while it was away"
            assert counts("three", first)
            postgres.stop()
            try:
                assert "named tokens are for all planners on the database" in make("late", first, code=2)
                assert "counts no more at this planner" in token("revoke", "three", at=first, code=2)
                assert not counts("three", first)
            finally:
                postgres.start()
            wait_until(lambda: not counts("three", second))
            token("revoke", "three", at=first)
    # A planner that has lost its state folder knows them again.
    with replica(tmp_path / "third", url, first):
        operator = ["--token-file", str(tmp_path / "third" / "state" / "operator-token")]
        assert main(["token", "list", "--json", "--planner", first, *operator]) == 0
        listed = {one["name"]: one["revoked_s"] for one in json.loads(capsys.readouterr().out)["tokens"]}
        assert {name for name, revoked_s in listed.items() if not revoked_s} == {"elsewhere"}
        assert listed.keys() == {"one", "two", "three", "elsewhere"}


@pytest.mark.stress
def test_pages_of_replicas_know_each_other(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.url(postgres.fresh_database())
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))

    async def play(page: str) -> None:
        running = [asyncio.create_task(agent.run()) for agent in started("job-0", second)]
        try:
            await until(lambda: bool(owners(postgres)))
            async with httpx.AsyncClient(base_url=page, headers={"Accept": "text/html"}, timeout=PATIENCE_S) as client:
                until_s = time.monotonic() + PATIENCE_S
                while 'id="elsewhere-job-0"' not in (fleet := (await client.get("/")).text):
                    assert time.monotonic() < until_s, fleet
                assert (
                    f"This replica, {first}, shows the jobs that it serves live. Others serve more: {second}" in fleet
                )
                assert f'class="wide" data-label="Served by">{second}</td>' in (await client.get("/elsewhere")).text
                moved = await client.get("/jobs/job-0")
                assert moved.status_code == 409
                assert f"at the replica {second}" in moved.text
                assert (await client.get("/jobs/no-such-job")).status_code == 404
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=10)

    with replica(tmp_path / "first", url, first, "--web", "127.0.0.1:0") as one, replica(tmp_path / "two", url, second):
        asyncio.run(play(one.told["web_url"]))


def test_ranks_and_their_relay_are_sent_on_and_a_replica_that_ends_hands_over(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.url(postgres.fresh_database())
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with (
        replica(tmp_path / "first", url, first) as ending,
        replica(tmp_path / "second", url, second),
        node_relay(tmp_path / "first", f"{second},{first}") as of_both,
        node_relay(tmp_path / "second", second) as of_second,
        RelayedRank("job", 0, f"{first},{second}", None, size=3) as direct,
    ):
        wait_until(lambda: direct.is_attached)
        assert owners(postgres)["job"][0] == first
        with (
            RelayedRank("job", 1, f"{second},{first}", of_both.socket, size=3) as relayed,
            RelayedRank("job", 2, f"{second},{first}", of_second.socket, size=3) as sent_on,
        ):
            ranks = (direct, relayed, sent_on)
            wait_until(lambda: all(rank.is_attached for rank in ranks))
            assert owners(postgres)["job"][0] == first
            assert num_connections(of_both.process.pid, port_of(first)) == 1
            assert num_connections(of_second.process.pid, port_of(first)) == 0
            assert [rank.troubles for rank in ranks] == [[], [], []]
            assert ending.end(signal.SIGTERM) == 0
            wait_until(lambda: all(rank.is_attached for rank in ranks))
            assert owners(postgres)["job"][0] == second
            assert num_connections(of_both.process.pid, port_of(second)) == 1


@pytest.mark.stress
def test_jobs_of_a_price_policy_go_to_the_replica_that_keeps_policies_and_on_from_there(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.url(postgres.fresh_database())
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
    signals = tmp_path / "signals"
    signals.mkdir()
    begin = datetime.now(UTC) - timedelta(hours=1)
    rows = (f"{(begin + timedelta(hours=hour)).isoformat()},60,{0.3 - hour / 100}" for hour in range(24))
    (signals / "falling.csv").write_text("\n".join(("timestamp,duration,value", *rows)) + "\n")
    tokens = [tmp_path / name / "state" / "operator-token" for name in ("first", "second")]
    for token in tokens:  # the same for all, as docs/operations.md says
        token.parent.mkdir(mode=0o700, parents=True)
        write_private(token, "the-same-for-all-replicas-of-this-test\n")

    def run(*words: str) -> str:
        assert main([*words, "--planner", f"{second},{first}", "--token-file", str(tokens[0])]) == 0
        return capsys.readouterr().out

    def shown() -> dict[str, tuple[bool, int]]:
        policies = json.loads(run("policy", "show", "--json"))["prices"]
        return {job["job"]: (job["is_paced"], job["iterations_done"]) for one in policies for job in one["jobs"]}

    def keeper() -> str:
        statement = "SELECT address FROM perseus_dist.leases JOIN perseus_dist.planners ON number = planner"
        rows = postgres.execute(f"{statement} WHERE job = '' AND alive_until > now()", "fresh")
        return str(rows[0][0]) if rows else ""

    async def report(agents: list[LoadAgent]) -> None:
        while True:
            for agent in agents:
                await agent.report(num_iterations=2)
            await asyncio.sleep(0.2)

    async def all_paced(agents: list[LoadAgent], least: dict[str, int]) -> dict[str, int]:
        """Iterations done, once both jobs are under way again and slowed by the policy, and at least so many are."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            found = await asyncio.to_thread(shown)
            are_paced = sorted(job for job, (is_paced, _) in found.items() if is_paced) == ["dear", "other"]
            are_counted = all(found[job][1] >= num for job, num in least.items() if job in found)
            if are_paced and are_counted and all(agent.attached.is_set() for agent in agents):
                return {job: done for job, (_, done) in found.items()}
            await asyncio.sleep(0.3)
        raise AssertionError(found)

    async def play(replicas: dict[str, Planner]) -> None:
        agents = started("dear", f"{first},{second}") + started("other", f"{second},{first}")
        running = [asyncio.create_task(agent.run()) for agent in agents]
        running.append(asyncio.create_task(report(agents)))
        try:
            await until(lambda: all(agent.attached.is_set() for agent in agents))
            assert {job: address for job, (address, _) in owners(postgres).items()} == {"dear": first, "other": second}
            deadline = (datetime.now(UTC) + timedelta(hours=20)).isoformat()
            asked = ("--signal", "falling.csv", "--deadline", deadline, "--iterations", "50000")
            await asyncio.to_thread(run, "policy", "price", "cheap", "--job", "dear", "--job", "other", *asked)
            keeping = keeper()
            await until(lambda: {address for address, _ in owners(postgres).values()} == {keeping})
            done = await all_paced(agents, {})
            replicas[keeping].end(signal.SIGKILL)
            (remaining,) = replicas.keys() - {keeping}
            await until(lambda: keeper() == remaining)
            await until(lambda: [address for address, _ in owners(postgres).values()] == [remaining] * 2)
            await all_paced(agents, done)  # progress is stored now and then: the count may be behind at first
        finally:
            for task in running:
                task.cancel()
            with suppress(TimeoutError):
                await asyncio.wait(running, timeout=10)

    with (
        replica(tmp_path / "first", url, first, "--signals", str(signals)) as one,
        replica(tmp_path / "second", url, second, "--signals", str(signals)) as other,
    ):
        asyncio.run(play({first: one, second: other}))


@pytest.mark.stress
@pytest.mark.usefixtures("postgres")
def test_owners_of_random_jobs_are_killed_and_stopped() -> None:
    script = Path(__file__).parents[1] / "stress" / "replica_kills.py"
    done = subprocess.run(
        [sys.executable, str(script), "--strikes", "3", "--move-clocks"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "postgresql://u@h:abc/d"], "--store: saw port abc, expected a number"),
        (["--store", "postgresql://u@h:5432,i:99999/d"], "--store: saw port 99999, expected a number"),
        (["--store", "postgresql://u@h/d?nosuch=1"], "--store: cannot be read"),
        (["--advertise", "a:1"], "--advertise needs --store"),
        (["--store", "postgresql://u@h/d", "--advertise", "0.0.0.0:1"], "--advertise 0.0.0.0:1: nothing"),
        (["--store", "postgresql://u@h/d", "--advertise", "a:0"], "--advertise a:0: nothing"),
    ],
)
def test_options_that_cannot_be_used_are_refused_before_anything_is_made(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("psycopg")
    assert main(["planner", "--state-dir", str(tmp_path / "state"), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.stress
def test_planning_goes_on_while_its_replica_cannot_reach_its_database(postgres: PostgresServer, tmp_path: Path) -> None:
    """The job is given up, comes back, and has the plan that was begun for it."""
    url = postgres.url(postgres.fresh_database())
    address = f"127.0.0.1:{free_port()}"
    agents = started("job", address)

    async def play(running: Planner) -> None:
        tasks = [asyncio.create_task(agent.run()) for agent in agents]
        try:
            while not planning_processes(running):
                for agent in agents:
                    await agent.report(4)
                await asyncio.sleep(0.1)
            (process,) = planning_processes(running)
            os.kill(process, signal.SIGSTOP)  # it plans for as long as the database is away
            postgres.pause()
            await until(lambda: not any(agent.attached.is_set() for agent in agents))
            postgres.resume()
            await until(lambda: all(agent.attached.is_set() for agent in agents))
            assert planning_processes(running) == [process]
            os.kill(process, signal.SIGCONT)
            await until(lambda: all(agent.switches for agent in agents))
        finally:
            postgres.resume()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=10)

    with replica(tmp_path / "only", url, address) as running:
        asyncio.run(play(running))
        log = log_of(running)
        assert "planning, which was kept, goes on" in log, log


def test_two_replicas_and_a_worker_plan_all_jobs(postgres: PostgresServer, tmp_path: Path) -> None:
    """Jobs that come at once, more than their replicas' workers: each has its plan, from the queue or not."""
    url = postgres.url(postgres.fresh_database())
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
    jobs = [f"job-{number}" for number in range(6)]

    async def play() -> list[str]:
        agents = [agent for job in jobs for agent in started(job, first if job < "job-4" else second)]
        running = [asyncio.create_task(agent.run()) for agent in agents]
        try:
            async with asyncio.timeout(3 * PATIENCE_S):
                while not all(agent.switches for agent in agents):
                    for agent in agents:
                        await agent.report(4)
                    await asyncio.sleep(0.5)
        except TimeoutError:
            return [
                f"{agent.rank.job_id}, rank {agent.rank.rank}, attached: {agent.attached.is_set()}, {task!r}"
                for agent, task in zip(agents, running, strict=True)
                if not agent.switches
            ]
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=10)
        return []

    with (
        replica(tmp_path / "first", url, first, "--metrics-port", "0") as one,
        replica(tmp_path / "second", url, second) as two,
        planning_worker(url),
    ):
        if without := asyncio.run(play()):
            pytest.fail(f"no switch for {without}\n{log_of(one)}\n{log_of(two)}")
        page = httpx.get(f"http://{one.told['metrics_address']}/metrics", timeout=PATIENCE_S).text
        assert re.search(r"^perseus_queued_planning_requests \d", page, re.MULTILINE)
        assert 'perseus_shared_plans_total{direction="for this planner"}' in page
