"""The fields of a scenario file that say what is trained; the same ones in a ``job`` event."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from perseus_dist.errors import PerseusError
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.named import SCHEDULE_NAMES
from perseus_dist.simulation.chaos.errors import ScenarioError
from perseus_dist.simulation.chaos.scenario.json_fields import REQUIRED, JsonFields
from perseus_dist.simulation.chaos.scenario.scenario import SAVED, SWEEP, ScenarioJob
from perseus_dist.simulation.chaos.scenario.target import parse_scenario_target
from perseus_dist.simulator.machine import MAX_GPUS
from perseus_dist.simulator.presets import PRESETS

_MAX_SIZE = 1024
_DEFAULTS: Mapping[str, Any] = {
    field.name: REQUIRED if field.default is MISSING else field.default for field in fields(ScenarioJob)
}


def take_job(taken: JsonFields, where: str, earlier: ScenarioJob | None = None) -> ScenarioJob:
    """Read a job.

    Args:
        taken: The object; other fields of it are left.
        where: Names it in messages.
        earlier: What a field that is not there means; None for the defaults.

    Raises:
        ScenarioError: A field is missing or out of range, or they do not fit each other.
    """
    usual = _DEFAULTS if earlier is None else asdict(earlier)
    job = ScenarioJob(
        schedule=taken.text("schedule", usual["schedule"], among=SCHEDULE_NAMES),
        pp=taken.whole("pp", 1, MAX_GPUS, usual["pp"]),
        microbatches=taken.whole("microbatches", 1, _MAX_SIZE, usual["microbatches"]),
        chunks=taken.whole("chunks", 1, _MAX_SIZE, usual["chunks"]),
        dp=taken.whole("dp", 1, MAX_GPUS, usual["dp"]),
        tp=taken.whole("tp", 1, MAX_GPUS, usual["tp"]),
        gpu=taken.text("gpu", usual["gpu"], each_among=tuple(PRESETS)),
        imbalance=taken.real("imbalance", 0, 10, usual["imbalance"]),
        time_scale=taken.real("time_scale", 1e-3, 1e3, usual["time_scale"]),
        noise_percent=taken.real("noise_percent", 0, 20, usual["noise_percent"]),
        profile=taken.text("profile", usual["profile"]),
        target=taken.text("target", usual["target"]),
        layers=taken.whole("layers", 0, _MAX_SIZE, usual["layers"]),
    )
    if 0 < job.layers < job.num_stages:
        raise ScenarioError(
            f"{where}: layers: saw {job.layers}, expected {job.num_stages} or more, one for each stage; or 0"
        )
    if job.num_ranks > MAX_GPUS:
        raise ScenarioError(
            f"{where}: pp x dp x tp: saw {job.pp} x {job.dp} x {job.tp} = {job.num_ranks} ranks, expected at most "
            f"{MAX_GPUS}; "
            "make one of them smaller"
        )
    if (num_models := job.gpu.count(",") + 1) not in (1, job.pp):
        raise ScenarioError(
            f"{where}: gpu: saw {num_models} names, expected one, or {job.pp}, one for each rank of a pipeline; mend it"
        )
    parse_scenario_target(job.target, f"{where}: target")
    try:
        job.make_schedule()
    except PerseusError as error:
        raise ScenarioError(f"{where}: schedule: {error}") from None
    if job.profile not in (SWEEP, SAVED):
        try:
            read_profile(Path(job.profile))
        except PerseusError as error:
            raise ScenarioError(f"{where}: profile: {error}; or {SWEEP!r} or {SAVED!r}") from None
    return job


def changed_fields(earlier: ScenarioJob, later: ScenarioJob) -> dict[str, Any]:
    """The fields of a ``job`` event that makes one job into another."""
    before = asdict(earlier)
    return {name: value for name, value in asdict(later).items() if value != before[name]}


def format_job(job: ScenarioJob) -> dict[str, Any]:
    """The fields of a job in a file: the essential ones always, others where they are not the default."""
    always = {"schedule", "pp", "dp", "microbatches", "gpu", "imbalance", "noise_percent", "profile", "target"}
    return {
        name: value for name, value in asdict(job).items() if name in always or json.dumps(value) != _default_text(name)
    }


def _default_text(name: str) -> str:
    default = _DEFAULTS[name]
    return "" if default is REQUIRED else json.dumps(default)
