"""Who may set clocks on a node: daemons, their answers, the user's own rights."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from perseus_dist.device.lease.client import LeaseClient
from perseus_dist.device.lease.connectors import SocketConnector, clockd_socket, zeusd_socket
from perseus_dist.device.lease.file import LeaseFile, lease_folder
from perseus_dist.device.rights import find_missing_right, owns_simulated_gpus
from perseus_dist.messages.finding import Finding, Level

_LEASE_PATIENCE_S = 3.0


def inspect_control(environ: Mapping[str, str], uuids: Sequence[str]) -> Iterator[Finding]:
    """Look for clockd, zeusd and the right to set clocks.

    Args:
        environ: The environment.
        uuids: GPUs that clockd is asked for a lease of, which is given back.
    """
    answers = False
    for name, path in (("clockd", clockd_socket(environ)), ("zeusd", zeusd_socket(environ))):
        try:
            SocketConnector(path).connect().close()
        except FileNotFoundError:
            yield Finding(level=Level.OK, subject=name, what=f"not running (no {path})")
        except PermissionError:
            remedy = f"become a member of the group of {path}, or start {name} with a group that you are in"
            yield Finding(level=Level.WARN, subject=name, what=f"{path} may not be used by you", remedy=remedy)
        except OSError as error:
            what = f"{path} does not answer ({error.strerror or error})"
            yield Finding(level=Level.WARN, subject=name, what=what, remedy=f"restart {name}")
        else:
            found = (
                _ask_for_leases(path, uuids, lease_folder(environ))
                if name == "clockd"
                else [_answers(name, f"answers on {path}")]
            )
            answers = answers or any(finding.level is Level.OK for finding in found)
            yield from found
    if owns_simulated_gpus(environ):
        yield Finding(
            level=Level.OK, subject="rights", what="these simulated GPUs are yours: clocks can be set directly"
        )
    elif not answers:
        missing = find_missing_right(environ)
        what = missing or "root could set clocks directly, and jobs do so only where control 'direct' is asked for"
        yield Finding(
            level=Level.WARN,
            subject="rights",
            what=f"{what}; no daemon sets them: jobs are observed only",
            remedy="start 'perseus-dist clockd' as root on this node",
        )


def _answers(name: str, what: str) -> Finding:
    return Finding(level=Level.OK, subject=name, what=what)


def _ask_for_leases(path: str, uuids: Sequence[str], folder: Path) -> list[Finding]:
    """Ask clockd for a lease of each GPU that no job holds, and give it back: it sets nothing meanwhile."""
    free = [uuid for uuid in uuids if not LeaseFile(folder, uuid).is_held()]
    findings, num_granted = [], 0
    for uuid in free:
        client = LeaseClient("clockd", SocketConnector(path), uuid, own_pids=(os.getpid(),))
        try:
            is_granted = client.open(_LEASE_PATIENCE_S, is_patient=False)
        except OSError as error:
            client.refusal, is_granted = f"{path}: {error.strerror or error}", False
        refusal = client.refusal
        client.close()
        if is_granted:
            num_granted += 1
            continue
        remedy = "see to what it says; jobs on this GPU are observed only"
        findings.append(Finding(level=Level.WARN, subject="clockd", what=f"{uuid}: {refusal}", remedy=remedy))
        if client.is_unusable or not client.was_refused:  # the answer would be the same for the others
            break
    if num_granted or not findings:
        what = (
            f"answers on {path}; of {len(uuids)} GPUs {len(uuids) - len(free)} are leased, and it grants {num_granted}"
        )
        findings.insert(0, _answers("clockd", what))
    return findings
