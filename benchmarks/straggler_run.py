"""A GPU overheats, overheats more, and cools down, in a real job: what is saved meanwhile, and how soon it is answered.

    python benchmarks/straggler_run.py [--framework deepspeed|megatron] [--megatron DIR]

Two pipelines of two stages train on simulated A100s under the same throttles three times: (a) with Perseus, (b) with
Perseus and ``planner --stragglers show``, which leaves everybody at the plan for T_min, and (c) with Perseus only
watching, at the clocks that GPUs choose. Energies are of one iteration of the pipeline that does not straggle. What
the frontier promises for a T' is its energy at T_min's plan waiting until T' minus its best plan's, waiting too; T' is
the profile's T_min times what the throttle makes of an iteration in (b), since the host's own work, which no profile
knows, is in every iteration. Bars: at least 90 % of the promise saved while a throttle lasts, full speed on all ranks
within 3 iterations of its end, and the others' own time, until they wait for gradient synchronisation, no more than 1 %
above the straggler's. The exit code is 1 if one is missed.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from measuring import conditions, print_table

from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.megatron_run import LAYOUTS, MegatronRun
from perseus_dist.simulation.frameworks.throttled_run import IterationWindow, ThrottledRun
from perseus_dist.simulation.frameworks.training_run import TrainingFailedError, TrainingRun
from perseus_dist.simulation.simulated_profile import simulated_profile
from perseus_dist.simulation.wall_run import SupervisedPlanner
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.throttle import Throttle
from perseus_dist.simulator.work import WorkTimes

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FRAMEWORKS = ("deepspeed", "megatron")
MODES = {"a": "Perseus", "b": "T_min's plan only", "c": "without Perseus's clocks"}
PRESET = "a100"
WORK = WorkTimes(forward_s=0.06, backward_s=0.11, imbalance=0.15)  # long beside the host's real work
CONSTANTS_S = {  # what they take on an idle machine
    "deepspeed": {"LOAD": 0.0005, "TIED": 0.00002, "REDUCE": 0.004, "STEP": 0.008},
    "megatron": {"REDUCE": 0.004, "STEP": 0.008},
}
SLOW_GPU = 3  # the last stage of the second pipeline
NUM_STEPS = 95
THROTTLES = (
    Throttle(at=35, gpu=SLOW_GPU, cap_mhz=1110),
    Throttle(at=55, gpu=SLOW_GPU, cap_mhz=900),
    Throttle(at=75, gpu=SLOW_GPU, cap_mhz=None),
)
MIN_SHARE, MAX_RECOVERY, MAX_LATER = 0.9, 3, 0.01

Figures = dict[str, Any]


def main() -> int:
    """Print the tables; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append", help="only this one; default: both")
    parser.add_argument("--megatron", type=Path, metavar="DIR", help="where the package megatron is, if not installed")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep every run's report under this folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    args = parser.parse_args()
    told, figures = conditions(), dict[str, list[Figures]]()
    print(f"{told}\n", flush=True)
    with ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for framework in args.framework or FRAMEWORKS:
            runs = {mode: _train(framework, mode, args.megatron, folder / f"{framework}-{mode}") for mode in MODES}
            figures[framework] = _figures(runs)
            _print(framework, figures[framework])
    if args.json:
        args.json.write_text(json.dumps({"conditions": told, "stretches": figures}, indent=1))
    return 0 if all(_is_passed(stretch) for stretches in figures.values() for stretch in stretches) else 1


def _train(framework: str, mode: str, megatron: Path | None, folder: Path) -> ThrottledRun:
    """One run, from its start to what it left."""
    folder.mkdir(parents=True)
    profile = folder / "saved.csv"
    profile.write_text(simulated_profile(PRESETS[PRESET], WORK, pp_size=2, constants_s=CONSTANTS_S[framework]))
    run = _run(framework, megatron, folder)
    with ExitStack() as stack:
        options = ["--perseus-profile", str(profile)]
        if mode == "c":
            options += ["--perseus-control", "observe"]
        else:
            stragglers = "act" if mode == "a" else "show"
            planner = SupervisedPlanner(folder, dict(os.environ), options=("--stragglers", stragglers))
            stack.callback(planner.end)
            options += ["--perseus-planner", planner.address]
        try:
            num_locked = replace(run, perseus_options=tuple(options)).train()
        except TrainingFailedError as error:
            sys.exit(f"{error}\n{error.log_tail}")
    print(f"{framework}, {MODES[mode]}: trained, {num_locked} clocks left locked", file=sys.stderr, flush=True)
    return ThrottledRun.read(folder)


def _run(framework: str, megatron: Path | None, folder: Path) -> TrainingRun:
    common: Mapping[str, Any] = {
        "num_steps": NUM_STEPS,
        "folder": folder,
        "preset": PRESET,
        "forward_s": WORK.forward_s,
        "backward_s": WORK.backward_s,
        "imbalance": WORK.imbalance,
        "throttles": THROTTLES,
    }
    if framework == "megatron":
        script, layout = EXAMPLES / "megatron_gpt.py", LAYOUTS["PP2 x DP2"]
        return MegatronRun(script=script, layout=layout, megatron=megatron, **common)
    return DeepSpeedRun(
        script=EXAMPLES / "deepspeed_gpt.py",
        config=EXAMPLES / "deepspeed_gpt.json",
        num_stages=2,
        num_pipelines=2,
        launcher="perseus-deepspeed",
        **common,
    )


def _figures(runs: Mapping[str, ThrottledRun]) -> list[Figures]:
    """Of each stretch, in all modes."""
    stretches_of = zip(*(run.stretches for run in runs.values()), strict=True)
    control = runs["b"]
    usual_s = control.time_s(control.stretches[0])
    return [_of_stretch(runs, dict(zip(runs, stretches, strict=True)), usual_s) for stretches in stretches_of]


def _of_stretch(runs: Mapping[str, ThrottledRun], stretches: Mapping[str, IterationWindow], usual_s: float) -> Figures:
    acting, stretch = runs["a"], stretches["a"]
    time_s = {mode: run.time_s(stretches[mode]) for mode, run in runs.items()}
    energy_j = {mode: run.energy_j(stretches[mode]) for mode, run in runs.items()}
    figures: Figures = {
        "stretch": stretch.name,
        "time_s": time_s,
        "energy_j": energy_j,
        "slow_energy_j": {mode: run.energy_j(stretches[mode], of_slow=True) for mode, run in runs.items()},
        "others_own_time_s": acting.own_time_s(stretch),
        "slow_own_time_s": acting.own_time_s(stretch, of_slow=True),
        "is_lifted": stretch.name == "lifted",
    }
    if stretch.injection is None:
        return figures
    figures |= {"told_after": acting.told_after(stretch), "switched_after": acting.switched_after(stretch)}
    if not figures["is_lifted"]:
        at_t_min_j, best_j = acting.waiting_j(acting.all_maximum_s * time_s["b"] / usual_s)
        figures |= {"promised_j": at_t_min_j - best_j, "saved_j": energy_j["b"] - energy_j["a"]}
    return figures


def _is_passed(figures: Figures) -> bool:
    if "switched_after" not in figures:
        return True
    switched_after = figures["switched_after"]
    if figures["is_lifted"]:
        return switched_after is not None and switched_after <= MAX_RECOVERY
    is_saved = figures["saved_j"] >= MIN_SHARE * figures["promised_j"]
    is_in_time = figures["others_own_time_s"] <= (1 + MAX_LATER) * figures["slow_own_time_s"]
    return switched_after is not None and is_saved and is_in_time


def _print(framework: str, stretches: Sequence[Figures]) -> None:
    heads = [f"{framework}, GPU {SLOW_GPU}", "told after", "all ranks switched after"]
    heads += [f"time {mode} [s]" for mode in MODES]
    heads += ["others' own, a [s]", "straggler's own, a [s]"]
    heads += [f"energy {mode} [J]" for mode in MODES]
    heads += ["saved, a against b [J]", "promised [J]", "share [%]", "bars"]
    rows = []
    for figures in stretches:
        row = [figures["stretch"], *(_count(figures.get(name)) for name in ("told_after", "switched_after"))]
        row += [f"{figures['time_s'][mode]:.4f}" for mode in MODES]
        row += [f"{figures[name]:.4f}" for name in ("others_own_time_s", "slow_own_time_s")]
        row += [f"{figures['energy_j'][mode]:.1f}" for mode in MODES]
        if "saved_j" in figures:
            saved_j, promised_j = figures["saved_j"], figures["promised_j"]
            row += [f"{saved_j:.1f}", f"{promised_j:.1f}", f"{100 * saved_j / promised_j:.0f}"]
        else:
            row += ["-"] * 3
        rows.append((*row, "met" if _is_passed(figures) else "MISSED"))
    print_table(heads, rows)
    print(f"\n{'; '.join(f'{mode}: {told}' for mode, told in MODES.items())}; 'after' counts iterations\n", flush=True)


def _count(iterations: int | None) -> str:
    return "-" if iterations is None else str(iterations)


if __name__ == "__main__":
    sys.exit(main())
