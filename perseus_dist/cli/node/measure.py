"""``perseus-dist measure``: one GPU's curves, latencies and costs, and what a pipeline of it would save."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.cli.number_options import real
from perseus_dist.cli.planning.output import staged_output
from perseus_dist.cli.planning.schedule_options import positive_int
from perseus_dist.library.tables import format_table

if TYPE_CHECKING:
    from perseus_dist.measure.bench.stage import StageSize
    from perseus_dist.measure.measurement import Measurement
    from perseus_dist.measure.saving import Noise, PipelineSaving
    from perseus_dist.planning.frontier.frontier import Frontier

_SECONDS = real(5, 3600, "seconds from 5 to 3600")

_EPILOG = """\
example:
  perseus-dist measure
  perseus-dist measure --observe --out gpu
  perseus-dist measure --control direct --layers 8 --hidden 5120 --heads 40 --pp 8 --microbatches 32

Runs a stage of transformer layers on CUDA device 0 (CUDA_VISIBLE_DEVICES chooses it) or on a simulated GPU: forward
and backward at each of some clocks, waiting, and changes of clocks. Clocks are set through clockd or zeusd, or with
--control direct as root; where neither is there the GPU is observed at the clock at which it runs by itself. Clocks are
released at the end, also after Ctrl-C, SIGTERM or SIGKILL. Power limits are never set. --observe asks for no clock and
no lease: nothing is changed at all. Without a GPU it runs under 'perseus-dist sim --cuda --'.

Also measured: what NVML's calls and the trainer's hook cost, boundaries on the stream against the device's own events,
and whether CUDA and NVML mean the same GPU. DIR gets:

  profile.csv    the measured stage as every stage of a pipeline, for 'perseus-dist plan'
  measure.json   everything
  measure.html   the same with pictures
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "measure",
        help="measure a GPU, and say what a pipeline of it would save",
        description="Measure one GPU: time and energy by clock, waiting, changes of clocks, and what calls cost.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--observe", action="store_true", help="change nothing: no clock, no lease")
    how.add_argument(
        "--control",
        choices=("auto", "clockd", "zeusd", "direct"),
        default="auto",
        help="who sets clocks (default: auto, clockd or zeusd, whichever runs; direct needs root)",
    )
    parser.add_argument(
        "--seconds", type=_SECONDS, default=150.0, metavar="S", help="for clocks and their changes (default: 150)"
    )
    stage = parser.add_argument_group("stage")
    for option, default, text in (
        ("--layers", 4, "transformer layers"),
        ("--hidden", 4096, "their width"),
        ("--heads", 32, "of attention"),
        ("--sequence-length", 2048, "tokens of a sequence"),
        ("--microbatch-size", 2, "sequences of a microbatch"),
    ):
        stage.add_argument(option, type=positive_int, default=default, metavar="N", help=f"{text} (default: {default})")
    pipeline = parser.add_argument_group("pipeline that the saving is told of, 1F1B")
    pipeline.add_argument("--pp", type=_pp_size, default=8, metavar="P", help="pp_ranks (default: 8)")
    pipeline.add_argument(
        "--microbatches", type=positive_int, default=32, metavar="M", help="per iteration (default: 32)"
    )
    parser.add_argument("--out", type=Path, default=Path("perseus-measure"), metavar="DIR", help="for the results")
    parser.add_argument("--json", action="store_true", help="print measure.json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, and write what was found."""
    from perseus_dist.measure.bench.workload import open_workload
    from perseus_dist.measure.measurement import measure_gpu
    from perseus_dist.measure.results.result_files import RESULTS, measure_document, write_results
    from perseus_dist.measure.saving import check_pipeline, noise_of
    from perseus_dist.simulation.supervised import supervised

    size = _stage_size(args)
    check_pipeline(args.pp, args.microbatches)
    with staged_output(args.out, RESULTS) as staging, supervised():
        workload = open_workload(size)
        try:
            measurement = measure_gpu(
                workload,
                control_mode="observe" if args.observe else args.control,
                seconds=args.seconds,
                say=_say,
            )
        finally:
            workload.close()
        noise = noise_of(measurement.planned_points or measurement.points)
        saving, frontier = _predict(args, measurement, noise, staging)
        write_results(measurement, noise, saving, frontier, staging)
        written = [name for name in RESULTS if (staging / name).exists()]
    if args.json:
        print(json.dumps(measure_document(measurement, noise, saving), allow_nan=False))
    else:
        _print(measurement, noise, saving)
        print(f"\nWritten to {args.out}: {', '.join(written)}.")
        if saving is not None:
            print(
                f"perseus-dist plan {args.out / 'profile.csv'} --schedule 1f1b --pp {args.pp} --microbatches "
                f"{args.microbatches} --blocking-power-w {measurement.blocking_power_w:.2f}"
            )
    return 0


def _predict(
    args: argparse.Namespace, measurement: "Measurement", noise: "Noise", staging: Path
) -> "tuple[PipelineSaving | None, Frontier | None]":
    """The profile, and what is planned from it; nothing where there is no clock to choose."""
    from perseus_dist.measure.results.result_files import PROFILE_CSV
    from perseus_dist.measure.saving import predict_saving, write_stage_profile

    if not measurement.has_curves:
        return None, None
    _say("what a pipeline would save")
    write_stage_profile(measurement.planned_points, measurement.latencies, staging / PROFILE_CSV, num_stages=args.pp)
    return predict_saving(
        staging / PROFILE_CSV,
        noise=noise,
        blocking_power_w=measurement.blocking_power_w,
        switch_latency_s=measurement.switch_latency_s,
        pp_size=args.pp,
        num_microbatches=args.microbatches,
    )


def _print(measurement: "Measurement", noise: "Noise", saving: "PipelineSaving | None") -> None:
    from perseus_dist.measure.results import tables

    print(tables.headline(measurement, saving) + "\n")
    for fact in tables.facts(measurement, noise, saving):
        print(f"  {fact}")
    for shown in tables.tables(measurement):
        columns = [
            (header, str(number), "s" if number < shown.num_texts else ">")
            for number, header in enumerate(shown.headers)
        ]
        records = [{str(number): cell for number, cell in enumerate(row)} for row in shown.rows]
        print(f"\n{shown.title}\n{format_table(columns, records)}{shown.note}".rstrip())


def _stage_size(args: argparse.Namespace) -> "StageSize":
    from perseus_dist.measure.bench.stage import StageSize

    return StageSize(
        layers=args.layers,
        hidden=args.hidden,
        heads=args.heads,
        sequence_length=args.sequence_length,
        microbatch_size=args.microbatch_size,
    )


def _say(what: str) -> None:
    print(f"perseus-dist: {what}", file=sys.stderr, flush=True)


def _pp_size(text: str) -> int:
    """An argparse type: a pipeline of more than one rank."""
    value = positive_int(text)
    if value < 2:
        raise argparse.ArgumentTypeError(f"saw {text!r}, expected 2 or more pp_ranks")
    return value
