"""``perseus-dist simulate --scenario FILE`` and ``--chaos SEEDS``: histories of faults in virtual time."""

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING

from perseus_dist.errors import PerseusError

if TYPE_CHECKING:
    from perseus_dist.simulation.chaos.trial import Trial

_SEEDS = re.compile(r"(?P<first>[0-9]{1,18})(-(?P<last>[0-9]{1,18}))?")
_MAX_SEEDS = 10**6
_JOB_OPTIONS = {  # what a scenario says itself: its parsed value where it was not given
    "--pp": None,
    "--microbatches": None,
    "--chunks": None,
    "--microbatch-group-size": None,
    "--no-overlap-p2p": True,
    "--dp": 1,
    "--iterations": 80,
    "--gpu": "a100",
    "--imbalance": 0.1,
    "--target": None,
    "--granularity": "instruction",
    "--profile": None,
    "--log-dir": None,
}


class ChaosOptionsError(PerseusError):
    """Options that do not go with a history."""


def seeds(text: str) -> range:
    """An argparse type: a seed, or FIRST-LAST."""
    match = _SEEDS.fullmatch(text)
    first = int(match["first"]) if match else 0
    last = int(match["last"]) if match and match["last"] else first
    if match is None or not first <= last < first + _MAX_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a seed, as in 7, nor FIRST-LAST, as in 0-99")
    return range(first, last + 1)


def plays_history(args: argparse.Namespace) -> bool:
    """Whether the options ask for a history."""
    return args.scenario is not None or args.chaos is not None


def check_no_history(args: argparse.Namespace) -> None:
    """Refuse options that only several seeds have, and logs of processes that there are not.

    Raises:
        PerseusError: One was given.
    """
    for option, usual in (("--processes", 1), ("--known-failures", None)):
        if getattr(args, option[2:].replace("-", "_")) != usual:
            raise ChaosOptionsError(f"{option} goes with --chaos FIRST-LAST alone; add it, or leave {option} out")
    if args.virtual_time and args.log_dir is not None:
        raise ChaosOptionsError("--log-dir beside --virtual-time, which has no processes that log: leave --log-dir out")


def run_history(args: argparse.Namespace) -> int:
    """Play it.

    Returns:
        0; 1 if an invariant broke.

    Raises:
        PerseusError: Options that contradict each other, or a scenario that cannot be read or played.
    """
    _check(args)
    if args.scenario is not None:
        return _play_file(args)
    return _play_seed(args) if len(args.chaos) == 1 else _play_seeds(args)


def _check(args: argparse.Namespace) -> None:
    name = "--chaos" if args.scenario is None else "--scenario"
    if not args.virtual_time:
        raise ChaosOptionsError(f"{name} without --virtual-time: histories are played in virtual time alone; add it")
    for option, usual in _JOB_OPTIONS.items():
        field = "overlap_p2p" if option == "--no-overlap-p2p" else option[2:].replace("-", "_")
        if getattr(args, field) != usual:
            raise ChaosOptionsError(f"{option} beside {name}, which says all that itself: leave {option} out")
    if args.known_failures is not None and len(args.chaos or ()) < 2:
        raise ChaosOptionsError("--known-failures goes with several seeds: give --chaos FIRST-LAST, or leave it out")


def _play_file(args: argparse.Namespace) -> int:
    from perseus_dist.simulation.chaos.answer import answer_document, answer_text
    from perseus_dist.simulation.chaos.invariants.every import broken_invariants
    from perseus_dist.simulation.chaos.play import play
    from perseus_dist.simulation.chaos.scenario.scenario_file import read_scenario
    from perseus_dist.simulation.chaos.world.virtual_world import open_virtual_world

    run = play(read_scenario(args.scenario), open_virtual_world)
    broken = broken_invariants(run)
    print(json.dumps(answer_document(run, broken)) if args.json else answer_text(run, broken), flush=True)
    return 1 if broken else 0


def _play_seed(args: argparse.Namespace) -> int:
    from perseus_dist.simulation.chaos.answer import broken_document, broken_lines
    from perseus_dist.simulation.chaos.scenario.scenario_file import format_scenario, scenario_document
    from perseus_dist.simulation.chaos.shrink import MAX_RUNS
    from perseus_dist.simulation.chaos.trial import shrunk, try_seed

    trial = try_seed(args.chaos[0])
    if trial.broken and not args.json:
        print(f"seed {trial.seed} breaks {trial.broken[0].name}: shrinking its history", file=sys.stderr, flush=True)
    scenario = shrunk(trial.scenario, trial.broken, max_runs=MAX_RUNS) if trial.broken else trial.scenario
    if args.json:
        document = {
            "simulated_gpus": True,
            "seed": trial.seed,
            "broken_invariants": [broken_document(one) for one in trial.broken],
            "scenario": scenario_document(scenario),
        }
        print(json.dumps(document), flush=True)
    else:
        drawn = f"{trial.scenario.job.num_ranks} ranks, {trial.scenario.iterations} iterations"
        print(f"simulated GPUs: seed {trial.seed}: {drawn}, {len(trial.scenario.events)} events")
        print("\n".join(broken_lines(trial.broken)))
        if trial.broken:
            print(f"a smaller history that breaks {trial.broken[0].name}, for --scenario FILE:")
            print(format_scenario(scenario), end="", flush=True)
    return 1 if trial.broken else 0


def _play_seeds(args: argparse.Namespace) -> int:
    from perseus_dist.simulation.chaos.campaign import run_campaign
    from perseus_dist.simulation.chaos.known_failures import compare, read_known_failures

    num_done = 0

    def progress(trial: "Trial") -> None:
        nonlocal num_done
        num_done += 1
        verdict = ", ".join(dict.fromkeys(one.name for one in trial.broken)) or "holds"
        print(f"{num_done}/{len(args.chaos)}: seed {trial.seed}: {verdict}", file=sys.stderr, flush=True)

    known = {} if args.known_failures is None else read_known_failures(args.known_failures)
    campaign = run_campaign(args.chaos, processes=args.processes, progress=progress)
    comparison = compare(campaign.trials, known)
    print(json.dumps(campaign.document()) if args.json else campaign.text(), flush=True)
    if args.known_failures is not None:
        print(comparison.text(), file=sys.stderr if args.json else sys.stdout, flush=True)
    return 1 if comparison.new else 0
