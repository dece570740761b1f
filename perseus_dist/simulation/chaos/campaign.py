"""Many seeds, on several processes, and what they came to."""

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import InvalidStateError, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.util import Finalize
from statistics import fmean
from typing import Any

from perseus_dist.simulation.chaos.answer import broken_document
from perseus_dist.simulation.chaos.drawing.fault_kinds import FaultKind
from perseus_dist.simulation.chaos.invariants.every import INVARIANT_NAMES
from perseus_dist.simulation.chaos.trial import CRASH, Trial, try_seed

_LARGE = 16
_S_PER_HOUR = 3600.0
_SAFE_PATH = "PYTHONSAFEPATH"
_TERMINATED = 128 + signal.SIGTERM
_AGAIN_S = 5.0  # between two signals to a process that has not ended

_remove_temporary_files: Finalize | None = None  # of this process, where it is one of a pool


@dataclass(slots=True)
class Campaign:
    """The results of some seeds."""

    trials: list[Trial] = field(default_factory=list)

    @property
    def failing(self) -> list[Trial]:
        """Those that broke something, by seed."""
        return sorted((trial for trial in self.trials if trial.broken), key=lambda trial: trial.seed)

    @property
    def num_broken(self) -> dict[str, int]:
        """By invariant, how many seeds broke it."""
        counts = Counter(name for trial in self.trials for name in {one.name for one in trial.broken})
        return {name: counts[name] for name in (*INVARIANT_NAMES, CRASH)}

    @property
    def seeds_per_core_hour(self) -> float:
        """How many seeds a core plays in an hour, both runs of each included."""
        return _S_PER_HOUR * len(self.trials) / max(1e-9, sum(trial.cpu_s for trial in self.trials))

    def document(self) -> dict[str, Any]:
        """Values that ``--json`` prints of the campaign, in types that JSON has."""
        return {
            "simulated_gpus": True,
            "seeds": len(self.trials),
            "broken_seeds": len(self.failing),
            "broken_by_invariant": self.num_broken,
            "failing": [
                {"seed": trial.seed, "broken_invariants": [broken_document(one) for one in trial.broken]}
                for trial in self.failing
            ],
            "distribution": self.distribution(),
            "seeds_per_core_hour": self.seeds_per_core_hour,
        }

    def distribution(self) -> dict[str, Any]:
        """The distribution of drawn scenarios, and the share that reached a plan."""
        num = max(1, len(self.trials))
        ranks = [trial.scenario.job.num_ranks for trial in self.trials]
        faults = Counter(kind for trial in self.trials for kind in trial.faults)
        return {
            "mean_ranks": fmean(ranks) if ranks else 0.0,
            "share_of_16_ranks_or_more": sum(count >= _LARGE for count in ranks) / num,
            "mean_iterations": fmean(trial.scenario.iterations for trial in self.trials) if ranks else 0.0,
            "share_that_reached_a_plan": sum(trial.reached_plan for trial in self.trials) / num,
            "share_by_fault": {kind.value: faults[kind] / num for kind in FaultKind},
        }

    def text(self) -> str:
        """For a terminal."""
        drawn = self.distribution()
        faults = ", ".join(f"{name} {100 * share:.0f} %" for name, share in drawn["share_by_fault"].items())
        by_name = ", ".join(f"{name} {count}" for name, count in self.num_broken.items() if count)
        return "\n".join(
            [
                f"{len(self.failing)} of {len(self.trials)} seeds broke an invariant{by_name and f': {by_name}'}",
                *(f"  seed {trial.seed}: {trial.broken[0].name}: {trial.broken[0].sentence}" for trial in self.failing),
                f"ranks: {drawn['mean_ranks']:.1f} on the mean, 16 or more in "
                f"{100 * drawn['share_of_16_ranks_or_more']:.0f} % of seeds; iterations: {drawn['mean_iterations']:.0f}"
                f" on the mean; {100 * drawn['share_that_reached_a_plan']:.0f} % reached a plan",
                f"faults, in so many seeds: {faults}",
                f"{self.seeds_per_core_hour:.0f} seeds per core-hour",
            ]
        )


def run_campaign(seeds: Sequence[int], *, processes: int, progress: Callable[[Trial], None]) -> Campaign:
    """Try seeds.

    Args:
        seeds: Which.
        processes: At most so many at a time; 1 plays them in this process.
        progress: Told of each trial as it is done.
    """
    campaign = Campaign()
    for trial in _trials(seeds, processes):
        campaign.trials.append(trial)
        progress(trial)
    return campaign


def _trials(seeds: Sequence[int], processes: int) -> Iterator[Trial]:
    if processes == 1:
        yield from map(try_seed, seeds)
        return
    with spawned_pool(processes) as pool:
        yield from pool.map(_try_seed, seeds)


def _try_seed(seed: int) -> Trial:
    """In a process of the pool."""
    try:
        return try_seed(seed)
    except SystemExit:  # the pool would take it for a result, and go on with the next seed
        if _remove_temporary_files is not None:
            _remove_temporary_files()
        os._exit(_TERMINATED)


def _end_in_good_order() -> None:
    """SIGTERM must leave neither a machine's shared memory nor temporary files.

    It may come while a temporary folder is made or removed, so all of a process's lie in one, which goes with it.
    """
    global _remove_temporary_files  # noqa: PLW0603 - as there is one of each process, so there is one of this
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the campaign's own business
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    tempfile.tempdir = tempfile.mkdtemp(prefix="perseus-chaos-")
    _remove_temporary_files = Finalize(None, _remove_folder, args=(tempfile.tempdir,), exitpriority=0)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_TERMINATED))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    threading.Thread(target=_end_with_campaign, daemon=True).start()


def _remove_folder(folder: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    shutil.rmtree(folder, ignore_errors=True)


def _end_with_campaign() -> None:
    """A campaign that was killed cannot end its processes, and each of them keeps the others' pipes open."""
    campaign = parent_process()
    assert campaign is not None
    campaign.join()
    while True:  # Python swallows what a handler raises inside of a destructor
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_AGAIN_S)


@contextmanager
def spawned_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that share no native state of a simulated machine, as forks would, and import nothing from the current
    folder: their command line is multiprocessing's, which takes no ``-P``.

    Where an interrupt ends the processes and cancels what they have not begun, the pool's own thread may find both to
    have happened (``InvalidStateError``). That is no news, and not printed.
    """
    before, hook = os.environ.get(_SAFE_PATH), threading.excepthook
    os.environ[_SAFE_PATH] = "1"
    threading.excepthook = lambda failure: None if failure.exc_type is InvalidStateError else hook(failure)
    try:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_end_in_good_order) as pool:
            yield pool
    finally:
        threading.excepthook = hook
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before
