"""A replica takes over a thousand jobs at once, on PostgreSQL, and has its leases renewed all the while."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest
from planner_process import planner
from postgres_server import PostgresServer
from test_malformed_facts import good_rows
from waiting import wait_until

from perseus_dist.cli.main import main
from perseus_dist.simulation.frameworks.training_run import free_port

NUM_JOBS = 1000
PATIENCE_S = 600.0  # a minute's work where a machine is busy with fourteen other processes
MARGIN_S = 0.2  # of the lease, which a replica that has not renewed it gives up by its own clock
INSERT = """
WITH numbered AS (SELECT 'job-' || number AS job FROM generate_series(1, %(num_jobs)s) AS number),
    leased AS (INSERT INTO perseus_dist.leases (job, planner, epoch)
        SELECT job, 0, nextval('perseus_dist.epochs') FROM numbered)
INSERT INTO perseus_dist.facts (job, key, kind, body, blob)
SELECT job, key, kind, body, blob
FROM numbered CROSS JOIN unnest(%(keys)s::text[], %(kinds)s::text[], %(bodies)s::text[], %(blobs)s::bytea[])
    WITH ORDINALITY AS stored(key, kind, body, blob, place)
ORDER BY job, place
"""


@dataclass
class Watch:
    """The registration of a replica, as the database has it.

    Attributes:
        least_left_s: [s] that its leases lasted still, at the least.
        num_looks: How often that was asked.
    """

    least_left_s: float = 10.0
    num_looks: int = 0
    _end: Event = field(default_factory=Event)

    @contextmanager
    def kept(self, url: str) -> Iterator[None]:
        """Ask all the time."""
        thread = Thread(target=self._run, args=(url,))
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()

    def _run(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not self._end.wait(0.01):
                row = connection.execute(
                    "SELECT extract(epoch FROM max(alive_until) - clock_timestamp())::float8 FROM perseus_dist.planners"
                ).fetchone()
                assert row is not None
                self.least_left_s = min(self.least_left_s, row[0])
                self.num_looks += 1


@pytest.mark.parametrize(
    "budgets",
    [
        pytest.param((), id="free", marks=pytest.mark.stress),
        pytest.param(("hall",), id="of-a-budget", marks=pytest.mark.soak),
    ],
)
def test_a_thousand_jobs_are_taken_over(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], budgets: tuple[str, ...]
) -> None:
    """Jobs of a budget are looked at together whenever one of them changes."""
    watch, _ = taken_over(postgres, tmp_path, capsys, budgets)
    assert watch.num_looks > 50


@pytest.mark.alone
@pytest.mark.parametrize(
    "budgets",
    [
        pytest.param((), id="free", marks=pytest.mark.soak),
        pytest.param(("hall",), id="of-a-budget", marks=pytest.mark.stress),
    ],
)
def test_leases_are_renewed_while_a_thousand_jobs_are_taken_over(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], budgets: tuple[str, ...]
) -> None:
    watch, log = taken_over(postgres, tmp_path, capsys, budgets)
    assert watch.least_left_s > MARGIN_S
    assert not [line for line in log if "could not be renewed in time" in line or "failed" in line]


def taken_over(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], budgets: tuple[str, ...]
) -> tuple[Watch, list[str]]:
    """Have a replica take over all jobs: what became of its registration meanwhile, and its log."""
    url, address = postgres.url(postgres.fresh_database()), f"127.0.0.1:{free_port()}"

    def num_owned() -> int:
        ((number,),) = postgres.execute(
            "SELECT count(*) FROM perseus_dist.leases JOIN perseus_dist.planners ON number = planner "
            "WHERE job <> '' AND alive_until > now()",
            "fresh",
        )
        return int(number)

    with planner(tmp_path, "--store", url, "--bind", address, "--advertise", address) as running:
        log: list[str] = []
        assert running.process.stderr is not None
        reading = Thread(target=log.extend, args=(running.process.stderr,))
        reading.start()  # or the planner would wait once its log is as long as a pipe
        to_it = ["--planner", address, "--token-file", str(tmp_path / "state" / "operator-token")]
        for name in budgets:
            assert main(["policy", "set", name, "--watts", "350000", *to_it]) == 0

        def num_listed() -> int:
            capsys.readouterr()
            assert main(["jobs", "--json", *to_it]) == 0
            return len(json.loads(capsys.readouterr().out)["jobs"])

        watch = Watch()
        with watch.kept(postgres.url("fresh")):
            postgres.execute(INSERT, "fresh", stored_jobs())
            wait_until(lambda: num_owned() == NUM_JOBS, PATIENCE_S)
            wait_until(lambda: num_listed() == NUM_JOBS, PATIENCE_S)
        assert running.end() == 0
        reading.join()
    return watch, log


def stored_jobs() -> dict[str, object]:
    """The rows of a job under its plan, column by column."""
    keys, kinds, bodies, blobs = zip(*good_rows(), strict=True)
    return {
        "num_jobs": NUM_JOBS,
        "keys": list(keys),
        "kinds": list(kinds),
        "bodies": list(bodies),
        "blobs": list(blobs),
    }
