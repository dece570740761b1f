"""From what the trainer gave on standard input to what the core takes."""

import logging
import math
import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.agent.core.settings import SavedProfile, Settings
from perseus_dist.agent.following.rank_program import num_stages, schedule_digest
from perseus_dist.agent.process.devices import Devices
from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.device.node_name import node_name
from perseus_dist.errors import PerseusError, ProfileError
from perseus_dist.fingerprint import family_key, profile_key
from perseus_dist.messages.from_agent import Sample
from perseus_dist.messages.target_text import EXPECTED, read_target
from perseus_dist.messages.terms import Rank, Target, fingerprint_of
from perseus_dist.number_text import read_real
from perseus_dist.planning.input_file import InputFileError, read_input
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.instruction import BETWEEN_ITERATIONS

if TYPE_CHECKING:
    from perseus_dist.rpc.connection import ClientTls


_log = logging.getLogger(__name__)

_MAX_SHOWN = 8  # stages, in a sentence
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE = Path("/proc/self/ns/time")


class SpecError(PerseusError):
    """A setting of the rank's spec that the agent cannot use."""


def rank_from_spec(spec: RankSpec) -> Rank:
    """As in ``Attach``."""
    return Rank(
        job_id=spec.job_id,
        rank=spec.rank,
        pp_rank=spec.pp_rank,
        dp_rank=spec.dp_rank,
        tp_rank=spec.tp_rank,
        pp_size=spec.pp_size,
        dp_size=spec.dp_size,
        tp_size=spec.tp_size,
        schedule_digest=schedule_digest(spec.schedule),
        granularity=spec.granularity,
    )


def settings_from_spec(spec: RankSpec) -> Settings:
    """From its options ``lease_s``, ``drift_tolerance`` and ``granularity``, and from who runs the planner.

    Raises:
        SpecError: One is no number, or not positive.
    """
    usual = Settings()
    return Settings(
        lease_s=_positive(spec, "lease_s", usual.lease_s),
        holds_without_planner=spec.planner is not None,
        drift_tolerance=_positive(spec, "drift_tolerance", usual.drift_tolerance),
        version=version("perseus-dist"),
        host=node_name(os.environ),
        host_clock=_host_clock(),
        keeps_timeline=spec.report is not None,
        follows_moments=spec.options.get("granularity") != Granularity.RANK,
    )


def _host_clock() -> str:
    """Of processes that read the same CLOCK_MONOTONIC: that of one kernel, in one of its time namespaces."""
    try:
        boot_id = _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    with suppress(OSError):  # a kernel without such namespaces
        return f"{boot_id} {_TIME_NAMESPACE.stat().st_ino}"
    return boot_id


def parse_target(text: str) -> Target:
    """A target as options have it.

    Raises:
        SpecError: The text is no target.
    """
    try:
        return read_target(text)
    except ValueError:
        raise SpecError(f"target {text!r}: expected {EXPECTED}") from None


def saved_profile_from_spec(spec: RankSpec) -> SavedProfile | None:
    """The rows of the profile, on rank 0, which speaks for the job; its option ``blocking_power_w`` goes with them.

    None, with a warning, if the file cannot be read, is no profile, or is one of another number of stages: the job is
    measured as if none were named.

    Raises:
        SpecError: The blocking power is no number.
    """
    if spec.profile is None or spec.rank != 0:
        return None
    from perseus_dist.planning.profile.profile_csv import read_rows

    try:
        rows = read_rows(Path(spec.profile))
    except ProfileError as error:
        _log.warning("the profile that is named is not used, the job is measured anew: %s", error)
        return None
    profiled, trained = {row.stage for row in rows}, num_stages(spec.schedule)
    if profiled != set(range(trained)):
        _log.warning(
            "%s: saw stages %s, expected 0 to %d, those of this job; it is measured anew: name a profile of this job",
            spec.profile,
            ", ".join(map(str, sorted(profiled)[:_MAX_SHOWN])) + (", ..." if len(profiled) > _MAX_SHOWN else ""),
            trained - 1,
        )
        return None
    samples = tuple(
        Sample(
            chunk=0,
            kind=row.kind,
            clock_mhz=row.clock_mhz,
            time_s=row.time_s,
            energy_j=row.energy_j,
            time_std_s=max(row.time_std_s, 0.0) if row.time_std_s == row.time_std_s else 0.0,
            energy_std_j=max(row.energy_std_j, 0.0) if row.energy_std_j == row.energy_std_j else 0.0,
            num_runs=row.samples,
            window_s=0.0,
            stage=row.stage,
            time_p90_s=0.0 if math.isnan(row.time_p90_s) else row.time_p90_s,
        )
        for row in rows
        if row.kind != BETWEEN_ITERATIONS  # the job learns its own
    )
    return SavedProfile(samples=samples, blocking_power_w=_positive(spec, "blocking_power_w", 0.0))


def cache_file(spec: RankSpec, devices: Devices) -> Path | None:
    """The file that keeps the job's profile and plans for the next start of the same work.

    None where option ``cache``, a folder, is not given, and where no clock can be set. A profile that is named and
    cannot be read counts as none.
    """
    folder = spec.options.get("cache")
    if folder is None or not devices.gpu.clocks_mhz:
        return None
    saved_profile = b""
    if spec.profile is not None:
        with suppress(InputFileError):  # ``saved_profile_from_spec`` warns of it
            saved_profile = read_input(spec.profile)
    fingerprint = fingerprint_of(rank_from_spec(spec), devices.gpu, spec.workload)
    key = profile_key(fingerprint, saved_profile, uid=os.geteuid())
    name = f"{family_key(fingerprint)}-{key}.job"
    return Path(folder) / (f"simulated-{name}" if devices.is_simulated else name)


def tls_from_spec(spec: RankSpec) -> "ClientTls | None":
    """Options ``tls_ca``, ``tls_cert`` and ``tls_key`` name files; ``tls=1`` alone trusts the system's authorities.

    A planner that rank 0 embeds is trusted by its certificate.
    """
    if spec.shared_planner is not None:
        from perseus_dist.rpc.connection import ClientTls

        return ClientTls(ca_pem=spec.shared_planner.certificate)
    names = ("tls_ca", "tls_cert", "tls_key")
    if not {"tls", *names} & spec.options.keys():
        return None
    from perseus_dist.rpc.connection import ClientTls

    ca, cert, key = (Path(spec.options[name]) if name in spec.options else None for name in names)
    return ClientTls(ca=ca, cert=cert, key=key)


def relay_from_spec(spec: RankSpec) -> str | None:
    """Socket of the node's relay: option ``node_relay``, else ``$PERSEUS_NODE_RELAY``; for a planner that is named.

    None for a rank that is known by its certificate alone, which no relay can show in its place.
    """
    from perseus_dist.rpc.relay_contract import RELAY_VARIABLE

    if spec.planner is None or ("tls_cert" in spec.options and spec.token_file is None):
        return None
    return spec.options.get("node_relay") or os.environ.get(RELAY_VARIABLE) or None


def _positive(spec: RankSpec, name: str, usual: float) -> float:
    text = spec.options.get(name)
    if text is None:
        return usual
    try:
        return read_real(text, math.ulp(0), 1e6)
    except ValueError:
        raise SpecError(f"option {name}={text}: expected a positive number") from None
