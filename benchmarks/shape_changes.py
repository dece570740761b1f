"""Jobs that lose and regain pipelines and stages: profiled anew, planned with their stages, or under a plan made ahead.

    python benchmarks/shape_changes.py [--record] [--gpu a100]

Sequences of shapes in virtual time, as failures make them (Oobleck, SOSP '23): a pipeline is lost and its microbatches
go to the others, or a stage is lost and its layers are split over the rest; the same scenarios are played by ``simulate
--virtual-time --scenario``. Times and energies are the simulator's truth, over the first iterations of each shape, and
compared with the same iterations without Perseus. "Anew" drops what was measured with each shape; "kept" plans with it
when the job is back; "ahead" has made plans for likely shapes before. Plans are rough ones, made in a tenth of the
time; planning takes 3 s of virtual time.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from measuring import conditions, print_table, record_result

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.simulation.chaos.scenario.events import NextJob
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, virtual_job
from perseus_dist.simulation.virtual.training import VirtualTraining, virtual_training

NUM_ITERATIONS = 40  # of each shape
WHOLE = ScenarioJob(schedule="1f1b", pp=4, microbatches=8, dp=4, imbalance=0.3, layers=96, noise_percent=1.0)
FEWER_PIPELINES = {"dp": 3, "microbatches": 11}
FEWER_STAGES = {"pp": 3}
BACK = {"pp": 4, "dp": 4, "microbatches": 8}
SEQUENCES = {
    "a pipeline less, and back": (FEWER_PIPELINES, BACK),
    "a stage less, and back": (FEWER_STAGES, BACK),
    "both, and back": (FEWER_PIPELINES, FEWER_STAGES, BACK),
}
POLICIES = (Policy(carries_stages=False), Policy(), Policy(plans_ahead=True))
COLUMNS = (
    "GPU",
    "sequence",
    "PP x DP x M",
    "stages estimated",
    "plan after, anew [iterations]",
    "kept [iterations]",
    "ahead [iterations]",
    "saved anew [%]",
    "kept [%]",
    "ahead [%]",
    "slowdown anew [%]",
    "kept [%]",
    "ahead [%]",
    "predicted time off [%]",
)


@dataclass(frozen=True, slots=True)
class Span:
    """The first iterations of a shape.

    Attributes:
        until_plan: Iterations before all ranks followed a plan.
        all_max_s: An iteration at all-maximum clocks: by the first plan's profile, or truly.
    """

    time_s: float
    energy_j: float
    until_plan: int
    all_max_s: float


def main() -> int:
    """Play all sequences; 1 where a shape that was left is not under a plan within five iterations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=("a100", "h100", "a40"), help="these GPUs alone")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/shape_changes.json")
    args = parser.parse_args()
    print(conditions(), flush=True)
    rows: list[tuple[str, ...]] = []
    is_met = True
    for gpu in ("a100", "h100", "a40"):
        if args.gpu not in (None, gpu):
            continue
        for name, changes in SEQUENCES.items():
            jobs = [job for _, job in scenario_of(gpu, changes).jobs()]
            anew, kept, ahead = (_play(jobs, policy) for policy in POLICIES)
            without = _play_without(jobs)
            for number in range(len(jobs)):
                spans = (anew[number], kept[number], ahead[number])
                rows.append(_row(gpu, name, jobs, number, without[number], spans))
                print(*rows[-1], file=sys.stderr, flush=True)
                is_met &= number == 0 or ahead[number].until_plan <= kept[number].until_plan <= 5
    print_table(COLUMNS, rows)
    if args.record:
        record_result(
            "shape_changes", command="python benchmarks/shape_changes.py --record", columns=COLUMNS, rows=rows
        )
    return 0 if is_met else 1


def scenario_of(gpu: str, changes: Sequence[dict[str, int]]) -> Scenario:
    """A job that begins whole, and changes its shape every so many iterations."""
    events = [NextJob(iteration=NUM_ITERATIONS * (k + 1), changes=one) for k, one in enumerate(changes)]
    return Scenario(
        job=replace(WHOLE, gpu=gpu), iterations=NUM_ITERATIONS * (len(events) + 1), seed=1, events=tuple(events)
    )


def _simulated(job: ScenarioJob) -> SimulatedJob:
    return SimulatedJob(
        schedule=job.make_schedule(),
        num_pipelines=job.dp,
        num_iterations=NUM_ITERATIONS,
        imbalance=job.imbalance,
        layers=job.layers_of_stages,
    )


def _play(jobs: Sequence[ScenarioJob], policy: Policy) -> list[Span]:
    found = []
    first = jobs[0]
    with virtual_job(
        _simulated(first), first.gpu, policy, noise_percent=first.noise_percent, seed=1, quick_plans=True
    ) as training:
        for number, job in enumerate(jobs):
            if number:
                training.next_job(_simulated(job))
            found.append(_span(training))
    return found


def _span(training: VirtualJob) -> Span:
    before, all_max_s = len(training.iterations), 0.0
    for _ in range(NUM_ITERATIONS):
        training.run_iteration()
        if training.planner.job.plan is not None and not all_max_s:
            all_max_s = training.planner.job.plan.summary.baseline_time_ps / 1e12
    training.wait(5)  # what agents report of the last iterations
    own = training.iterations[before:]
    following = [{one.iteration for one in reports if one.point != NO_POINT} for reports in training.reports]
    return Span(
        time_s=sum(one.time_s for one in own),
        energy_j=sum(one.energy_j for one in own),
        until_plan=min(set.intersection(*following), default=NUM_ITERATIONS),
        all_max_s=all_max_s,
    )


def _play_without(jobs: Sequence[ScenarioJob]) -> list[Span]:
    found = []
    first = jobs[0]
    with virtual_training(_simulated(first), first.gpu, noise_percent=first.noise_percent, seed=1) as training:
        for number, job in enumerate(jobs):
            if number:
                training.next_job(_simulated(job))
            found.append(_bare_span(training))
    return found


def _bare_span(training: VirtualTraining) -> Span:
    before = len(training.iterations)
    for _ in range(NUM_ITERATIONS):
        training.run_iteration()
    own = training.iterations[before:]
    time_s = sum(one.time_s for one in own)
    return Span(time_s, sum(one.energy_j for one in own), 0, time_s / NUM_ITERATIONS)


def _num_estimated(jobs: Sequence[ScenarioJob], number: int) -> int:
    """Stages of a shape that no earlier one had: of the same layers, in the same role."""
    had = {one for job in jobs[:number] for one in _stages(job)}
    return sum(one not in had for one in _stages(jobs[number])) if number else 0


def _stages(job: ScenarioJob) -> list[tuple[int, bool, bool]]:
    layers = job.layers_of_stages
    return [(count, stage == 0, stage == len(layers) - 1) for stage, count in enumerate(layers)]


def _row(
    gpu: str, name: str, jobs: Sequence[ScenarioJob], number: int, without: Span, spans: Sequence[Span]
) -> tuple[str, ...]:
    job = jobs[number]
    return (
        gpu,
        name,
        f"{job.pp} x {job.dp} x {job.microbatches}",
        f"{_num_estimated(jobs, number)} of {job.pp}" if number else "all measured",
        *(str(one.until_plan) for one in spans),
        *(f"{100 * (1 - one.energy_j / without.energy_j):.2f}" for one in spans),
        *(f"{100 * (one.time_s / without.time_s - 1):+.2f}" for one in spans),
        f"{100 * (spans[1].all_max_s / without.all_max_s - 1):+.2f}",
    )


if __name__ == "__main__":
    sys.exit(main())
