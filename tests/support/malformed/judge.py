"""Runs an input in this process, in a folder of its own, and says what was wrong with what came of it."""

import io
import json
import os
import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import trustme

from malformed import arguments, documents, frontiers, rows, site_files
from malformed.case import Case, Expected, Generator
from malformed.report_folder import report_folder
from perseus_dist.cli.main import main

SLOW = "report part"
"""The kind of which one input takes a second, where a report can be made: it comes once in twenty rounds."""

MAX_S = 10.0
MAX_MIB = 512
# What a command would do to this machine with good arguments; everything before that is the real thing.
SPAWN = "perseus_dist.cli.simulated.sim._run_command"
EFFECTS = (
    "perseus_dist.planner.service.server.serve",
    "perseus_dist.cli.node.clockd.run_clockd",
    "perseus_dist.cli.node.release.release_named",
    "perseus_dist.cli.node.release.release_touched",
    "perseus_dist.cli.simulated.quickstart._run",
    SPAWN,
    "perseus_dist.measure.bench.workload.open_workload",
    "perseus_dist.simulation.wall_run.run_wall",
    "perseus_dist.simulation.virtual.run.run_virtual",
    "perseus_dist.simulation.chaos.trial.try_seed",
    "perseus_dist.simulation.chaos.campaign.run_campaign",
    "perseus_dist.simulation.chaos.play.play",
    "perseus_dist.training.opt_in.write_pth",
    "perseus_dist.training.opt_in.remove_pth",
)


class EffectReachedError(Exception):
    """The input was taken for good: the command would begin."""


def reach(*_: object, **__: object) -> Any:
    """Stand in for an effect."""
    raise EffectReachedError


@dataclass(slots=True)
class Tally:
    """What came of all inputs.

    Attributes:
        refused: By kind.
        taken: By kind, where that is allowed.
        faults: What should not have come, a sentence each.
    """

    refused: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    grown_mib: float = 0.0


@contextmanager
def workplace(folder: Path) -> Iterator[dict[str, Generator]]:
    """The folder with good files, an environment without surprises and no effects; gives the generators by kind."""
    (folder / "folder").mkdir()
    (folder / "profile.csv").write_text(rows.PROFILE)
    (folder / "losses.jsonl").write_text(
        "".join(f'{{"step": {step}, "loss": {5.0 - step / 10}}}\n' for step in range(6))
    )
    trustme.CA().cert_pem.write_to_path(folder / "authorities.pem")
    (folder / "loop").symlink_to("loop")
    (folder / "examples").mkdir()
    for name in ("deepspeed_gpt.py", "deepspeed_gpt.json"):
        (folder / "examples" / name).touch()
    environ = {
        "PERSEUS_LEASE_DIR": str(folder / "leases"),
        "XDG_STATE_HOME": str(folder / "state"),
        "SSL_CERT_FILE": str(folder / "authorities.pem"),  # one, where a system has a hundred, which each command reads
        "TMPDIR": str(folder / "folder"),
    }
    with ExitStack() as stack:
        stack.enter_context(chdir(folder))
        stack.enter_context(patch.dict(os.environ, environ))
        assert run(["plan", "profile.csv", *rows.OPTIONS, "--out", "made"])[0] == 0
        frontier = Path("made", "frontier.npz").read_bytes()
        for made in Path("made").iterdir():
            made.unlink()
        Path("made").rmdir()
        (folder / "good.npz").write_bytes(frontier)
        report = report_folder(folder / "run")
        for effect in EFFECTS:
            if effect != SPAWN:  # a program that is none is refused there
                stack.enter_context(patch(effect, reach))
        stack.enter_context(patch("perseus_dist.cli.node.doctor.command.inspect_device", lambda _environ: ()))
        stack.enter_context(patch("perseus_dist.cli.node.clockd.check_usable", lambda _environ: None))
        drawn = {
            **dict.fromkeys(("argument", "one more argument", "another argument"), arguments.bad_argument),
            "profile cell": rows.bad_cell,
            "profile shape": rows.bad_shape,
            "profile change": rows.bad_change,
            "profile bytes": rows.bad_bytes,
            "schedule": rows.bad_schedule,
            "archive": frontiers.bad_archive(frontier),
            "npy header": frontiers.bad_npy(frontier),
            "frontier header": frontiers.bad_header(frontier),
            "frontier array": frontiers.bad_array(frontier),
            "scenario": documents.bad_scenario,
            "known failures": documents.bad_known_failures,
            "losses": documents.bad_losses,
            "token": documents.bad_token,
            "certificate": documents.bad_certificate,
            "job.json": documents.bad_job,
            "signal": site_files.bad_signal,
            "load targets": site_files.bad_load_targets,
            "settings": site_files.bad_settings,
            "state": site_files.bad_state(folder),
        }
        yield drawn | {SLOW: documents.bad_part(report)}


def cases(generators: Mapping[str, Generator], seed: int, count: int) -> Iterator[Case]:
    """So many distinct inputs, kind after kind."""
    rng, seen, turn = Random(seed), set[bytes](), 0
    draws = [draw for name, draw in generators.items() if name != SLOW] * 20
    draws += [draw for name, draw in generators.items() if name == SLOW]
    num_repeated = 0
    while len(seen) < count and num_repeated < 200 * len(draws):
        case = draws[turn % len(draws)](rng)
        turn += 1
        if case.digest in seen:
            num_repeated += 1
            continue
        num_repeated = 0
        seen.add(case.digest)
        yield case


def run(argv: list[str]) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a command line; 0 where its effect was reached."""
    out, error = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(error):
        try:
            code = main(argv)
        except SystemExit as stop:
            code = int(stop.code or 0)
        except EffectReachedError:
            code = 0
    texts = []
    for stream in (out, error):
        stream.seek(0)
        texts.append(stream.read())
    return code, texts[0], texts[1]


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of everything in a folder."""
    return {
        str(path.relative_to(folder)): (status.st_size, status.st_mtime_ns)
        for path in folder.rglob("*")
        for status in (path.lstat(),)
    }


def judge(case: Case, folder: Path, tally: Tally) -> None:
    """Run an input; ``tally`` gets what came of it. The folder is as before when it returns."""
    for name, data in case.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    before = contents(folder)
    began_s, peak_kib = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fault = ""
    try:
        code, out, error = run(list(case.argv))
    except Exception as escaped:
        code, out, error = 99, "", ""
        fault = f"traceback {type(escaped).__name__}: {escaped!s:.200}"
    took_s = time.perf_counter() - began_s
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib) / 1024
    tally.slowest_s, tally.grown_mib = max(tally.slowest_s, took_s), max(tally.grown_mib, grown_mib)
    after = contents(folder)
    fault = fault or _fault(case, code, out, error, before, after)
    if not fault and took_s > MAX_S:
        fault = f"took {took_s:.1f} s"
    if not fault and grown_mib > MAX_MIB:
        fault = f"took {grown_mib:.0f} MiB"
    if fault:
        files = {name: data[:300] for name, data in case.files.items()} if len(case.files) < 3 else list(case.files)
        tally.faults.append(f"{case.kind}: {fault}\n    {[word[:200] for word in case.argv]}\n    {files}")
    else:
        (tally.refused if code == 2 else tally.taken)[case.kind] += 1
    for name in sorted(after.keys() - (before.keys() - case.files.keys()), reverse=True):
        path = folder / name
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in sorted({str(Path(name).parent) for name in case.files} - {"."}):
        if (folder / name).is_dir():
            (folder / name).rmdir()


def _fault(
    case: Case, code: int, out: str, error: str, before: Mapping[str, object], after: Mapping[str, object]
) -> str:
    """What is wrong with what came; empty if nothing."""
    if code == 2:
        lines = error.splitlines()
        if len(lines) != 1 or not error.startswith("perseus-dist") or not error.endswith("\n"):
            return f"{len(lines)} lines: {error[:300]!r}"
        if out:
            return f"standard output beside the refusal: {out[:200]!r}"
        if after != before:
            return f"refused, and changed {sorted({*after.items()} ^ {*before.items()})[:4]}"
        shown = [" ".join(name.encode("utf-8", "backslashreplace").decode().splitlines()) for name in case.named]
        if not any(name in error or repr(name)[1:-1] in error for name in shown):
            return f"the message names none of {shown}: {error[:300]!r}"
        return ""
    if code not in (0, 1):
        return f"exit code {code}: {error[:300]!r}"
    if case.expected is Expected.REFUSED or code != 0:
        return f"taken (exit {code}): {(out or error)[:300]!r}"
    if case.expected is Expected.SAME:
        good = run([word.replace("bad.npz", "good.npz") for word in case.argv])[1]
        if json.loads(out) | {"source": ""} != json.loads(good) | {"source": ""}:
            return f"taken, and another result: {out[:300]!r}"
    return ""
