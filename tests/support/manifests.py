"""The manifests of ``launch/kubernetes``: rendered, or as they are written; their pods, and what pods must never be."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "launch" / "kubernetes"
KUSTOMIZATIONS = (
    "overlays/production",
    "overlays/postgres",
    "overlays/simulated",
    "options/prices",
    "options/node-metrics",
    "examples/trainer",
)
NODE_FOLDER = "/run/perseus-dist"
# What one workload needs and no other may have, on nodes with real GPUs.
RIGHTS: Mapping[str, frozenset[str]] = {
    "perseus-clockd": frozenset({"hostPID", "hostPath", "root", "SYS_ADMIN", "SYS_PTRACE", "escalation"}),
    "perseus-node-metrics": frozenset({"hostPID", "hostPath", "root", "SYS_PTRACE"}),
    "gpt": frozenset({"hostPath", "writable root", "no probes"}),
}

Document = dict[str, Any]


def written(*folders: str) -> list[Document]:
    """The resources of some folders, as they are written."""
    paths = sorted(path for folder in folders for path in (FOLDER / folder).glob("*.yaml"))
    return [
        document
        for path in paths
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text())
    ]


def rendered(kubectl: str, kustomization: str) -> list[Document]:
    """What ``kubectl apply -k`` would send."""
    command = [kubectl, "kustomize", str(FOLDER / kustomization)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A resource that makes pods."""

    kind: str
    name: str
    namespace: str
    labels: Mapping[str, str]
    pod: Document
    claims: tuple[str, ...]

    @property
    def containers(self) -> list[Document]:
        """Those that run before the others too."""
        return [*(self.pod.get("initContainers") or ()), *self.pod["containers"]]

    def container(self, name: str) -> Document:
        return next(container for container in self.containers if container["name"] == name)


def workloads(documents: list[Document]) -> list[Workload]:
    """Of all documents that make pods."""
    return [
        Workload(
            kind=document["kind"],
            name=document["metadata"]["name"],
            namespace=document["metadata"]["namespace"],
            labels=document["spec"]["template"]["metadata"]["labels"],
            pod=document["spec"]["template"]["spec"],
            claims=tuple(claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", ())),
        )
        for document in documents
        if "template" in document.get("spec", {})
    ]


def commands(container: Document) -> Iterator[list[str]]:
    """The words of a container's own command, and of its probes."""
    yield [*container["command"], *container.get("args", ())]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe in container:
            yield container[probe]["exec"]["command"]


def our_words(words: list[str]) -> Iterator[list[str]]:
    """The arguments of each ``perseus-dist`` in a command: by itself, in a shell, or started by another of ours."""
    if words[:2] == ["sh", "-c"]:
        words = shlex.split(words[2])
        words = words[: words.index("||")] if "||" in words else words
    while "perseus-dist" in words:
        words = words[words.index("perseus-dist") + 1 :]
        yield words


def paths(words: list[str]) -> list[str]:
    """Files and folders that a command names."""
    return [match[1] for word in words for match in re.finditer(r"(?:^|[= ])(/[^ ]+)", word)]


def violations(documents: list[Document]) -> list[str]:
    """What must never be, in words: where, and what."""
    return [
        f"{workload.name}{f'/{where}' if where else ''}: {what}"
        for workload in workloads(documents)
        for where, what in (
            *(("", what) for what in _pod_violations(workload)),
            *(
                (container["name"], what)
                for container in workload.containers
                for what in _container_violations(workload, container)
            ),
        )
    ]


def _pod_violations(workload: Workload) -> Iterator[str]:
    pod, rights = workload.pod, RIGHTS.get(workload.name, frozenset())
    context = pod.get("securityContext", {})
    if pod.get("hostNetwork") or pod.get("hostIPC"):
        yield "hostNetwork or hostIPC"
    if pod.get("hostPID") and "hostPID" not in rights:
        yield "hostPID"
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccompProfile"
    if not context.get("runAsNonRoot") and "root" not in rights:
        yield "root"
    if not {"runAsUser"} <= context.keys():
        yield "no runAsUser"
    if pod.get("automountServiceAccountToken") is not False:
        yield "a token of the API server"
    if workload.kind != "Job" and not pod.get("priorityClassName"):
        yield "no priorityClassName"
    if "terminationGracePeriodSeconds" not in pod:
        yield "no terminationGracePeriodSeconds"
    for volume in pod.get("volumes", ()):
        if "hostPath" in volume and ("hostPath" not in rights or volume["hostPath"]["path"] != NODE_FOLDER):
            yield f"hostPath {volume['hostPath']['path']}"


def _container_violations(workload: Workload, container: Document) -> Iterator[str]:
    rights, context = RIGHTS.get(workload.name, frozenset()), container.get("securityContext", {})
    tag = container["image"].rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest"):
        yield f"image {container['image']}"
    if context.get("privileged"):
        yield "privileged"
    if context.get("allowPrivilegeEscalation") is not False and "escalation" not in rights:
        yield "allowPrivilegeEscalation"
    if not context.get("readOnlyRootFilesystem") and "writable root" not in rights:
        yield "a writable root file system"
    capabilities = context.get("capabilities", {})
    if capabilities.get("drop") != ["ALL"]:
        yield "capabilities are not dropped"
    if extra := set(capabilities.get("add") or ()) - rights:
        yield f"capabilities {sorted(extra)}"
    for kind in ("requests", "limits"):
        if not {"cpu", "memory"} <= container.get("resources", {}).get(kind, {}).keys():
            yield f"no {kind}"
    if container in workload.pod["containers"] and "no probes" not in rights:
        yield from (f"no {probe}" for probe in ("livenessProbe", "readinessProbe") if probe not in container)
    if any("hostPort" in port for port in container.get("ports", ())):
        yield "hostPort"
    for variable in container.get("env") or ():
        is_named_so = re.search("TOKEN|SECRET|PASSWORD|KEY", variable["name"])
        if "secretKeyRef" in variable.get("valueFrom", {}) or (is_named_so and "value" in variable):
            yield f"a secret in the environment: {variable['name']}"
    if any("secretRef" in source for source in container.get("envFrom", ())):
        yield "a secret in the environment"
