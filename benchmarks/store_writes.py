"""What a durable commit takes in each store: SQLite, PostgreSQL on the same machine, and that behind pgbouncer.

    python benchmarks/store_writes.py [--record]

All three flush to the same disk, and take turns, so that other work on the machine slows all alike. Latency is of
commits one by one, each a sample of one rank; throughput is of 1,000 ranks that commit as fast as they are answered.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measuring import conditions, print_table, record_result

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from postgres_server import PostgresServer, running_server

from perseus_dist.messages.from_agent import ProfileSamples, Sample
from perseus_dist.planner.job.facts.sweeps import SamplesReceived
from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.postgres_facts import PostgresFacts
from perseus_dist.planner.store.store import Store

NUM_RANKS = 1000
NUM_JOBS = 8
COLUMNS = ("store", "one commit, median", "one commit, p99", "commits/s, 1,000 ranks", "of SQLite's")


def samples(rank: int, clock_mhz: int) -> SamplesReceived:
    """What a rank has measured at a clock."""
    sample = Sample(
        chunk=0, kind="F", clock_mhz=clock_mhz, time_s=0.1, energy_j=30.0, time_std_s=1e-3, energy_std_j=0.1,
        num_runs=40, window_s=4.0,
    )  # fmt: skip
    told = ProfileSamples(sequence=1, sweep_id=1, step=clock_mhz, samples=(sample,) * 4, last=False)
    return SamplesReceived(
        rank=rank, pp_rank=0, dp_rank=rank, tp_rank=0, incarnation=1, series=1, clock_mhz=clock_mhz, samples=told
    )  # fmt: skip


def latencies_s(store: Store, num_commits: int) -> list[float]:
    """Of commits one after the other."""
    taken = []
    for number in range(num_commits):
        fact = samples(0, number)
        began_s = time.perf_counter()
        store.commit("one", [fact]).result()
        taken.append(time.perf_counter() - began_s)
    return taken


def commits_per_s(store: Store, num_rounds: int) -> float:
    """Of all ranks, each of which commits again once it is answered."""
    began_s = time.perf_counter()
    pending = [store.commit(f"job {rank % NUM_JOBS}", [samples(rank, 0)]) for rank in range(NUM_RANKS)]
    for number in range(1, num_rounds):
        for rank in range(NUM_RANKS):
            pending[rank].result()
            pending[rank] = store.commit(f"job {rank % NUM_JOBS}", [samples(rank, number)])
    for each in pending:
        each.result()
    return NUM_RANKS * num_rounds / (time.perf_counter() - began_s)


def openers(server: PostgresServer, folder: Path) -> dict[str, Callable[[], Store]]:
    """How each store is opened."""
    database = server.fresh_database()

    def postgres(*, pooled: bool) -> Store:
        address = PostgresAddress(server.url(database, pooled=pooled))
        return Store(PostgresFacts(address, state_id="benchmark", waits=False))

    return {
        "SQLite": lambda: Store(folder / "planner.sqlite"),
        "PostgreSQL": lambda: postgres(pooled=False),
        "PostgreSQL behind pgbouncer": lambda: postgres(pooled=True),
    }


def main() -> None:
    """Take turns and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=5, help="of each store (default: %(default)s)")
    parser.add_argument("--commits", type=int, default=200, help="one by one in a turn (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="of all ranks in a turn (default: %(default)s)")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/store_writes.json")
    args = parser.parse_args()
    told = conditions()
    one: dict[str, list[float]] = {}
    many: dict[str, list[float]] = {}
    with running_server(fsync=True) as server, tempfile.TemporaryDirectory() as folder:
        server.start_pooler()
        for _ in range(args.turns):
            for name, opened in openers(server, Path(folder)).items():
                store = opened()
                one.setdefault(name, []).extend(latencies_s(store, args.commits))
                many.setdefault(name, []).append(commits_per_s(store, args.rounds))
                for job in ("one", *(f"job {number}" for number in range(NUM_JOBS))):
                    store.forget(job).result()
                store.close()
    reference = statistics.median(many["SQLite"])
    rows = [
        (
            name,
            f"{statistics.median(one[name]) * 1e3:.2f} ms",
            f"{statistics.quantiles(one[name], n=100)[98] * 1e3:.1f} ms",
            f"{statistics.median(many[name]):,.0f}",
            f"{statistics.median(many[name]) / reference:.2f}",
        )
        for name in one
    ]
    print_table(COLUMNS, rows)
    print(told)
    if args.record:
        record_result("store_writes", command="python benchmarks/store_writes.py --record", columns=COLUMNS, rows=rows)


if __name__ == "__main__":
    main()
