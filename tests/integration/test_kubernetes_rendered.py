"""``launch/kubernetes`` as kubectl renders it: valid for several versions of Kubernetes, and within the policy."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from manifests import FOLDER, KUSTOMIZATIONS, Document, rendered, violations, workloads, written

from perseus_dist.cli.parser import build_parser

pytestmark = pytest.mark.stress

OLD_KUBECTL = Path(__file__).parents[2] / "build/kubernetes-client/usr/bin/kubectl"
VERSIONS = ("1.28", "1.34")
OWN_KINDS = {"ServiceMonitor", "PrometheusRule"}  # of the Prometheus Operator


@cache
def documents_of(kustomization: str, kubectl: str | None = shutil.which("kubectl")) -> list[Document]:
    if kubectl is None:
        pytest.skip("kubectl is not installed: apt-get install kubernetes-client")
    return rendered(kubectl, kustomization)


@pytest.mark.skipif(not OLD_KUBECTL.exists(), reason="kubectl is Debian's, or no other is there: .ci/packages")
@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_old_and_new_kustomize_render_the_same(kustomization: str) -> None:
    versions = [
        json.loads(subprocess.run([one, "version", "--client", "-o", "json"], check=True, capture_output=True).stdout)
        for one in (str(OLD_KUBECTL), "kubectl")
    ]
    assert "kustomizeVersion" not in versions[0], "kustomize 2, which kubectl had until 1.20"
    old, new = (
        sorted(json.dumps(document, sort_keys=True) for document in documents_of(kustomization, kubectl))
        for kubectl in (str(OLD_KUBECTL), "kubectl")
    )
    assert old == new


@pytest.fixture(params=KUSTOMIZATIONS)
def documents(request: pytest.FixtureRequest) -> list[Document]:
    return documents_of(request.param)


def find(documents: list[Document], kind: str, name: str) -> Document:
    (found,) = [one for one in documents if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_resources_are_valid(documents: list[Document], version: str) -> None:
    for document in documents:
        if document["kind"] not in OWN_KINDS:
            kubernetes_validate.validate(document, version, strict=True)


def test_the_validator_sees_a_misspelled_field() -> None:
    document = find(documents_of("overlays/production"), "StatefulSet", "perseus-planner")
    wrong = {**document, "spec": {**document["spec"], "replica": 1}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_nothing_that_must_never_be(documents: list[Document]) -> None:
    assert violations(documents) == []


def test_everything_that_is_written_is_rendered_once(documents: list[Document]) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in documents]
    assert len({*names}) == len(names)
    assert all("namespace" in one["metadata"] for one in documents if one["kind"] not in ("Namespace", "PriorityClass"))
    for folder in sorted(FOLDER.rglob("kustomization.yaml")):
        listed = yaml.safe_load(folder.read_text())
        files = {name for key in ("resources", "patchesStrategicMerge") for name in listed.get(key, ())}
        assert files == {path.name for path in folder.parent.glob("*.yaml")} - {"kustomization.yaml"}


def test_images_come_from_the_registry_that_is_named_once() -> None:
    for kustomization in ("overlays/production", "overlays/postgres", "examples/trainer"):
        for workload in workloads(documents_of(kustomization)):
            assert all(container["image"].startswith("registry.example/") for container in workload.containers)


def test_simulated_gpus_take_no_rights_of_the_node() -> None:
    (daemon,) = [one for one in workloads(documents_of("overlays/simulated")) if one.kind == "DaemonSet"]
    assert not daemon.pod.get("hostPID")
    assert not {"runtimeClassName", "nodeSelector", "initContainers"} & daemon.pod.keys()
    (container,) = daemon.containers
    assert not container.get("env")
    assert "add" not in container["securityContext"]["capabilities"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_a_planner_ends_when_the_service_has_forgotten_it() -> None:
    planner = find(documents_of("overlays/production"), "StatefulSet", "perseus-planner")
    pod = planner["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    assert int(seconds) + 3 < pod["terminationGracePeriodSeconds"], "it drains in 3 s"


def test_what_prometheus_reads() -> None:
    documents = documents_of("overlays/production")
    monitor, service = (
        find(documents, "ServiceMonitor", "perseus-planner"),
        find(documents, "Service", "perseus-planner"),
    )
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"].keys() <= {"selector", "endpoints"}
    names = {port["name"] for port in service["spec"]["ports"]}
    for endpoint in monitor["spec"]["endpoints"]:
        assert endpoint["port"] in names
        assert endpoint.keys() <= {"port", "scheme", "tlsConfig", "interval", "scrapeTimeout", "honorLabels"}
        assert endpoint["scheme"] == "https"
        tls = endpoint["tlsConfig"]
        assert tls["serverName"] == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
        (secret,) = [
            volume["secret"]["secretName"]
            for workload in workloads(documents)
            for volume in workload.pod["volumes"]
            if "secret" in volume
        ]
        assert tls["ca"]["secret"] == {"name": secret, "key": "ca.crt"}
        assert seconds(endpoint["scrapeTimeout"]) <= seconds(endpoint["interval"])
    for group in find(documents, "PrometheusRule", "perseus-dist")["spec"]["groups"]:
        assert group.keys() == {"name", "rules"}
        for rule in group["rules"]:
            assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
            assert {"summary", "description"} == rule["annotations"].keys()


def seconds(duration: Any) -> int:
    assert duration.endswith("s")
    return int(duration[:-1])


def test_patches_change_what_the_base_has() -> None:
    simulated = {(one.kind, one.name) for one in workloads(documents_of("overlays/simulated"))}
    assert simulated == {(one.kind, one.name) for one in workloads(written("base/planner", "base/clockd"))}


def test_planners_and_workers_of_a_database_name_the_same_one() -> None:
    pods = {one.name: one for one in workloads(documents_of("overlays/postgres"))}
    assert pods.keys() == {"perseus-planner", "perseus-clockd", "perseus-planning-worker"}
    planner, worker = (pods[name].containers[0] for name in ("perseus-planner", "perseus-planning-worker"))
    assert planner["image"] == worker["image"]
    of_database = [word for word in worker["args"] if word.startswith("--store")]
    assert len(of_database) == 2
    (usual,) = workloads(written("base/planner"))
    assert planner["args"] == [*usual.containers[0]["args"], *of_database]
    for container in (planner, worker):
        assert callable(build_parser().parse_args(container["args"]).run)
    for pod in (pods["perseus-planner"], pods["perseus-planning-worker"]):
        (secret,) = [volume["secret"] for volume in pod.pod["volumes"] if volume["name"] == "store"]
        assert secret == {"secretName": "perseus-store", "defaultMode": 0o440}
        assert pod.pod["securityContext"]["fsGroup"] == pod.pod["securityContext"]["runAsGroup"]
        mounts = {mount["name"]: mount["mountPath"] for mount in pod.containers[0]["volumeMounts"]}
        assert of_database[1] == f"--store-password-file={mounts['store']}/password"
        assert mounts.keys() == {volume["name"] for volume in pod.pod["volumes"]} | {*pod.claims}
