"""``launch/kubernetes`` as written: what its manifests start runs here by their own words, and their probes ask it."""

import argparse
import copy
import ipaddress
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trustme
import yaml
from dockerfile_parse import DockerfileParser
from manifests import FOLDER, Document, Workload, commands, our_words, paths, violations, workloads, written
from planner_process import planner
from waiting import PATIENCE_S, wait_for

from perseus_dist.cli import main
from perseus_dist.cli.parser import build_parser
from perseus_dist.device.lease.clockd_process import ClockdProcess
from perseus_dist.device.lease.connectors import DEFAULT_CLOCKD_SOCKET
from perseus_dist.device.opening import open_clock_control
from perseus_dist.planner.service.server import DRAIN_S
from perseus_dist.simulator.machine import SimulatedMachine
from perseus_dist.training.options import add_options

DOCUMENTS = written(
    "base/planner",
    "base/clockd",
    "base/planning-worker",
    "options/prices",
    "options/node-metrics",
    "examples/trainer",
)
WORKLOADS = {workload.name: workload for workload in workloads(DOCUMENTS)}
CLOCKD_RESTORES_S = 5.0


def words_of(workload: str, container: str) -> list[str]:
    command = WORKLOADS[workload].container(container)
    return [*command["command"], *command.get("args", ())]


def replaced(words: list[str], replacements: dict[str, str]) -> list[str]:
    for old, new in replacements.items():
        assert any(old in word for word in words), f"{old} is not in {words}"
        words = [word.replace(old, new) for word in words]
    return words


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_commands_and_their_options_are_ours(workload: Workload) -> None:
    found = 0
    for container in workload.containers:
        for command in commands(container):
            for words in our_words(command):
                assert callable(build_parser().parse_args(words).run)
                found += 1
            if "perseus_dist.megatron" in command:
                parser = argparse.ArgumentParser(allow_abbrev=False)
                add_options(parser, flag="--enable-perseus")
                _, others = parser.parse_known_args(command[command.index("perseus_dist.megatron") + 2 :])
                assert others == []
                found += 1
    assert found >= len(workload.containers)


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_every_path_is_mounted_and_every_mount_is_a_volume(workload: Workload) -> None:
    volumes = {volume["name"] for volume in workload.pod["volumes"]} | {*workload.claims}
    for container in workload.containers:
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert {*mounts.values()} <= volumes
        for command in commands(container):
            for path in paths(command):
                assert any(path == mount or path.startswith(f"{mount}/") for mount in mounts), path
    named = {mount["name"] for container in workload.containers for mount in container["volumeMounts"]}
    assert named == volumes


def test_pods_are_given_the_time_that_they_need_to_end() -> None:
    grace_s = {name: workload.pod["terminationGracePeriodSeconds"] for name, workload in WORKLOADS.items()}
    assert grace_s["perseus-planner"] >= 2 * DRAIN_S
    assert grace_s["perseus-clockd"] >= 2 * CLOCKD_RESTORES_S


def test_the_planner_of_the_manifest_serves_and_its_probes_say_so(tmp_path: Path) -> None:
    ca = trustme.CA()
    leaf = ca.issue_cert("perseus-planner.perseus-dist.svc")
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    leaf.private_key_pem.write_to_path(tmp_path / "tls.key")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    container = WORKLOADS["perseus-planner"].container("planner")
    program, command, *options = words_of("perseus-planner", "planner")
    assert (program, command) == ("perseus-dist", "planner")
    here = {"/etc/perseus-dist/tls": str(tmp_path), "/var/lib/perseus-dist": str(tmp_path)}
    free = {"0.0.0.0": "127.0.0.1", ":50151": ":0", ":50152": ":0", ":9464": ":0"}
    options = replaced(options, {**here, **free})
    with planner(tmp_path, *options) as running:
        port = running.address.rpartition(":")[2]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            words = container[probe]["exec"]["command"]
            assert words[0] == "perseus-dist"
            probed = replaced(words[1:], {"/etc/perseus-dist/tls": str(tmp_path), ":50151": f":{port}"})
            assert main(probed) == 0
        metrics_port = running.told["metrics_address"].rpartition(":")[2]
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        trusted.check_hostname = False  # of the service, as the ServiceMonitor has it
        with urllib.request.urlopen(f"https://127.0.0.1:{metrics_port}/metrics", context=trusted) as answer:
            metrics = answer.read().decode()
        with urllib.request.urlopen(running.told["web_url"], context=trusted) as answer:
            assert "Log in" in answer.read().decode()
        (rules,) = written("overlays/production")[:1]
        for rule in rules["spec"]["groups"][0]["rules"]:
            for name in (word for word in rule["expr"].split("(") if word.startswith("perseus_")):
                assert f"\n{name.partition(')')[0]} " in metrics
        assert running.end() == 0
    assert main(probed) == 1


def serves(words: list[str]) -> bool:
    return main(words) == 0


def test_the_planning_worker_of_the_manifest_serves_and_its_probes_say_so(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    container = WORKLOADS["perseus-planning-worker"].container("planning-worker")
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "password").chmod(0o440)  # as the volume has it
    away = {"perseus@db.example/perseus": "u@127.0.0.1:1/d", "/etc/perseus-dist/store": str(tmp_path)}
    program, *options = replaced(
        words_of("perseus-planning-worker", "planning-worker"), {**away, "/tmp/alive": f"{tmp_path}/alive"}
    )
    assert program == "perseus-dist"
    worker = subprocess.Popen([sys.executable, "-m", "perseus_dist", *options], stderr=subprocess.DEVNULL)
    try:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            words = replaced(container[probe]["exec"]["command"][1:], {"/tmp/alive": f"{tmp_path}/alive"})
            wait_for(partial(serves, words))
        began_s = time.monotonic()
        worker.terminate()
        assert worker.wait(PATIENCE_S) == 0
        assert time.monotonic() - began_s < WORKLOADS["perseus-planning-worker"].pod["terminationGracePeriodSeconds"]
    finally:
        worker.kill()
        worker.wait()
    os.utime(tmp_path / "alive", (0, 0))
    assert main(words) == 1


def test_clockd_of_the_manifest_serves_and_its_init_container_unlocks_what_a_killed_one_left(tmp_path: Path) -> None:
    container = WORKLOADS["perseus-clockd"].container("clockd")
    program, command, *options = words_of("perseus-clockd", "clockd")
    assert (program, command) == ("perseus-dist", "clockd")
    with SimulatedMachine("a100", count=1) as machine:
        environ = {**os.environ, **machine.environment(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        here = {"/run/perseus-dist/clockd.sock": str(tmp_path / "clockd.sock"), "/run/perseus-dist": str(tmp_path)}
        group = {"10151": str(os.getgid())}
        with ClockdProcess(tmp_path, environ, *replaced(options, {**here, **group})) as clockd:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                words = container[probe]["exec"]["command"]
                assert main(replaced(words[1:], {"/run/perseus-dist": str(tmp_path)})) == 0
            gpu = machine.gpu(0)
            control = open_clock_control("clockd", gpu.uuid, own_pids=[], environ=clockd.environ)
            control.request(1200, time.monotonic_ns())
            wait_for(lambda: control.poll(time.monotonic_ns()))
            clockd.kill()
            assert not gpu.state().is_unlocked
            released = replaced(words_of("perseus-clockd", "release"), {"/run/perseus-dist": str(tmp_path)})
            subprocess.run(released, env=environ, check=True, timeout=60)
            assert gpu.state().is_unlocked
            control.close()
            clockd.start()


def test_node_metrics_of_the_manifest_are_written_and_its_probes_see_them(tmp_path: Path) -> None:
    container = WORKLOADS["perseus-node-metrics"].container("node-metrics")
    here = {"/run/perseus-dist": str(tmp_path)}
    own = {one["name"]: one["value"] for one in container["env"] if one["name"].startswith("PERSEUS_")}
    probe = replaced(container["readinessProbe"]["exec"]["command"], here)
    written_to = tmp_path / "metrics" / "perseus.prom"
    with SimulatedMachine("a100", count=1) as machine:
        environ = {**os.environ, **machine.environment(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        environ |= {name: value.replace("/run/perseus-dist", str(tmp_path)) for name, value in own.items()}
        assert subprocess.run(probe, env=environ, check=False).returncode != 0
        words = replaced(words_of("perseus-node-metrics", "node-metrics"), here)
        with subprocess.Popen(words, env=environ, start_new_session=True) as running:
            try:
                wait_for(written_to.exists)
            finally:
                os.killpg(running.pid, signal.SIGTERM)
    assert "perseus_node_clockd_up 0" in written_to.read_text()
    assert "perseus_node_gpu_clocks_left_locked" in written_to.read_text()
    assert written_to.stat().st_mode & 0o444 == 0o444  # node_exporter is not root
    assert subprocess.run(probe, env=environ, check=False).returncode == 0
    three_minutes_ago = time.time() - 240
    os.utime(written_to, (three_minutes_ago, three_minutes_ago))
    assert subprocess.run(probe, env=environ, check=False).returncode != 0


def test_alerts_on_nodes_are_those_of_other_clusters() -> None:
    rules = yaml.safe_load((FOLDER.parent / "prometheus" / "perseus.rules.yml").read_text())
    known = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    (group,) = of_kind("PrometheusRule")["perseus-nodes"]["spec"]["groups"]
    assert {rule["alert"] for rule in group["rules"]} == {
        "PerseusClocksLeftLocked",
        "PerseusNodeMetricsOld",
        "PerseusGpuThrottled",
    }
    for rule in group["rules"]:
        for part in ("expr", "for", "labels"):
            assert rule[part] == known[rule["alert"]][part]


def of_kind(kind: str) -> dict[str, Document]:
    return {document["metadata"]["name"]: document for document in DOCUMENTS if document["kind"] == kind}


def labels_of_namespace(name: str) -> dict[str, str]:
    labels: dict[str, str] = of_kind("Namespace")[name]["metadata"]["labels"]
    return {**labels, "kubernetes.io/metadata.name": name}


def selects(selector: dict[str, str], labels: Mapping[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def test_services_budgets_and_monitors_find_their_pods() -> None:
    for name, document in {**of_kind("StatefulSet"), **of_kind("DaemonSet"), **of_kind("Deployment")}.items():
        assert selects(document["spec"]["selector"]["matchLabels"], WORKLOADS[name].labels)
    planner_labels = WORKLOADS["perseus-planner"].labels
    service = of_kind("Service")["perseus-planner"]
    assert selects(service["spec"]["selector"], planner_labels)
    assert selects(of_kind("PodDisruptionBudget")["perseus-planner"]["spec"]["selector"]["matchLabels"], planner_labels)
    assert selects(of_kind("Service")["gpt"]["spec"]["selector"], WORKLOADS["gpt"].labels)
    assert WORKLOADS["gpt"].pod["subdomain"] == "gpt"
    ports = {port["name"]: port["containerPort"] for port in WORKLOADS["perseus-planner"].containers[0]["ports"]}
    assert {port["name"]: port["port"] for port in service["spec"]["ports"]} == ports
    words = words_of("perseus-planner", "planner")
    options = {"grpc": "bind", "metrics": "metrics", "web": "web"}
    assert {f"--{option}=0.0.0.0:{ports[name]}" for name, option in options.items()} <= {*words}


def test_network_policies_let_in_trainers_and_prometheus_and_no_others() -> None:
    policy = of_kind("NetworkPolicy")["perseus-planner"]["spec"]
    assert selects(policy["podSelector"]["matchLabels"], WORKLOADS["perseus-planner"].labels)
    assert (policy["policyTypes"], policy["egress"]) == (["Ingress", "Egress"], [])

    def allowed_ports(pod: Mapping[str, str], namespace: str) -> set[int]:
        return {
            port["port"]
            for rule in policy["ingress"]
            for source in rule["from"]
            if selects(source["namespaceSelector"]["matchLabels"], labels_of_namespace(namespace))
            and selects(source["podSelector"]["matchLabels"], pod)
            for port in rule["ports"]
        }

    assert allowed_ports(WORKLOADS["gpt"].labels, "training") == {50151}
    assert allowed_ports({}, "training") == set()
    assert allowed_ports(WORKLOADS["gpt"].labels, "perseus-dist-node") == set()
    (metrics,) = [rule for rule in policy["ingress"] if rule["ports"][0]["port"] == 9464]
    assert selects(metrics["from"][0]["podSelector"]["matchLabels"], {"app.kubernetes.io/name": "prometheus"})


def ports_by_target(policy: Document) -> list[tuple[list[Document] | None, set[tuple[int, str]]]]:
    return [
        (rule.get("to"), {(port["port"], port["protocol"]) for port in rule["ports"]})
        for rule in policy["spec"]["egress"]
    ]


NAMES = (
    [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
    {(53, "UDP"), (53, "TCP")},
)


def test_a_planning_worker_reaches_names_and_the_database_alone() -> None:
    policy = of_kind("NetworkPolicy")["perseus-planning-worker"]
    assert selects(policy["spec"]["podSelector"]["matchLabels"], WORKLOADS["perseus-planning-worker"].labels)
    assert (policy["spec"]["policyTypes"], policy["spec"]["ingress"]) == (["Ingress", "Egress"], [])
    assert ports_by_target(policy) == [NAMES, (None, {(5432, "TCP")})]
    planner_policies = [
        name
        for name, one in of_kind("NetworkPolicy").items()
        if selects(one["spec"]["podSelector"]["matchLabels"], WORKLOADS["perseus-planner"].labels)
    ]
    assert planner_policies == ["perseus-planner", "perseus-planner-prices"]


def test_a_planner_reaches_its_database_where_it_has_one() -> None:
    (policy,) = [one for one in written("overlays/postgres") if one["kind"] == "NetworkPolicy"]
    assert selects(policy["spec"]["podSelector"]["matchLabels"], WORKLOADS["perseus-planner"].labels)
    assert policy["spec"]["policyTypes"] == ["Egress"]
    assert ports_by_target(policy) == [NAMES, (None, {(5432, "TCP")})]


def test_prices_open_https_to_other_networks_alone() -> None:
    policy = of_kind("NetworkPolicy")["perseus-planner-prices"]
    assert policy["spec"]["policyTypes"] == ["Egress"]
    names, (targets, ports) = ports_by_target(policy)
    assert names == NAMES
    assert ports == {(443, "TCP")}
    assert targets is not None
    cluster = ("10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "fd00::1", "fe80::1")
    public = ("93.184.216.34", "2606:2800:220:1::1")
    for text in (*cluster, *public):
        to = ipaddress.ip_address(text)
        is_open = any(
            to in ipaddress.ip_network(block["ipBlock"]["cidr"])
            and not any(to in ipaddress.ip_network(cut) for cut in block["ipBlock"]["except"])
            for block in targets
        )
        assert is_open == (text in public), text


def test_the_job_finds_planner_socket_and_group_where_they_are() -> None:
    job, daemon = WORKLOADS["gpt"], WORKLOADS["perseus-clockd"]
    service = of_kind("Service")["perseus-planner"]["metadata"]
    port = WORKLOADS["perseus-planner"].containers[0]["ports"][0]["containerPort"]
    words = words_of("gpt", "trainer")
    assert f"--perseus-planner={service['name']}.{service['namespace']}.svc:{port}" in words
    (group,) = job.pod["securityContext"]["supplementalGroups"]
    assert f"--group={group}" in words_of("perseus-clockd", "clockd")
    assert group in daemon.pod["securityContext"]["supplementalGroups"]
    assert f"--socket={DEFAULT_CLOCKD_SOCKET}" in words_of("perseus-clockd", "clockd")
    folders = {
        volume["hostPath"]["path"] for pod in (job.pod, daemon.pod) for volume in pod["volumes"] if "hostPath" in volume
    }
    assert folders == {str(Path(DEFAULT_CLOCKD_SOCKET).parent)}
    assert f"--master-addr={of_kind('Job')['gpt']['metadata']['name']}-0.{job.pod['subdomain']}" in words


def test_alerts_on_the_planners_metrics_are_those_of_other_clusters() -> None:
    rules = yaml.safe_load((FOLDER.parent / "prometheus" / "perseus.rules.yml").read_text())
    of_nodes = re.compile(r"perseus_node_|node_textfile_|\bup\b")  # node_exporter and names of targets
    expected = [rule for group in rules["groups"] for rule in group["rules"] if not of_nodes.search(rule["expr"])]
    assert len(expected) > 4
    (alerts,) = written("overlays/production")[:1]
    groups = {group["name"]: group["rules"] for group in alerts["spec"]["groups"]}
    assert groups["perseus"] == expected


def test_nothing_that_must_never_be_is_there() -> None:
    assert violations(DOCUMENTS) == []


CHANGES: dict[str, Callable[[Document, Document], Any]] = {
    "hostNetwork": lambda pod, _: pod.update(hostNetwork=True),
    "hostPID": lambda pod, _: pod.update(hostPID=True),
    "hostPath": lambda pod, _: pod["volumes"].append({"name": "etc", "hostPath": {"path": "/etc"}}),
    "seccompProfile": lambda pod, _: pod["securityContext"].pop("seccompProfile"),
    "root": lambda pod, _: pod["securityContext"].pop("runAsNonRoot"),
    "runAsUser": lambda pod, _: pod["securityContext"].pop("runAsUser"),
    "a token of the API server": lambda pod, _: pod.pop("automountServiceAccountToken"),
    "priorityClassName": lambda pod, _: pod.pop("priorityClassName"),
    "terminationGracePeriodSeconds": lambda pod, _: pod.pop("terminationGracePeriodSeconds"),
    "image": lambda _, container: container.update(image="registry.example:5000/perseus-dist-planner"),
    "image registry.example/x:latest": lambda _, container: container.update(image="registry.example/x:latest"),
    "privileged": lambda _, container: container["securityContext"].update(privileged=True),
    "allowPrivilegeEscalation": lambda _, container: container["securityContext"].pop("allowPrivilegeEscalation"),
    "writable": lambda _, container: container["securityContext"].pop("readOnlyRootFilesystem"),
    "not dropped": lambda _, container: container["securityContext"].pop("capabilities"),
    "NET_ADMIN": lambda _, container: container["securityContext"]["capabilities"].update(add=["NET_ADMIN"]),
    "no limits": lambda _, container: container["resources"].pop("limits"),
    "no requests": lambda _, container: container["resources"]["requests"].pop("memory"),
    "no livenessProbe": lambda _, container: container.pop("livenessProbe"),
    "no readinessProbe": lambda _, container: container.pop("readinessProbe"),
    "hostPort": lambda _, container: container["ports"][0].update(hostPort=50151),
    "a secret in the environment: X": lambda _, container: container.update(
        env=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}}]
    ),
    "a secret in the environment: PERSEUS_TOKEN": lambda _, container: container.update(
        env=[{"name": "PERSEUS_TOKEN", "value": "x"}]
    ),
    "a secret in the environment": lambda _, container: container.update(envFrom=[{"secretRef": {"name": "token"}}]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_must_never_be_is_seen(what: str) -> None:
    documents = copy.deepcopy([of_kind("StatefulSet")["perseus-planner"]])
    pod = documents[0]["spec"]["template"]["spec"]
    CHANGES[what](pod, pod["containers"][0])
    (found,) = violations(documents)
    assert what in found


def test_what_one_may_the_others_may_not() -> None:
    daemon = copy.deepcopy(of_kind("DaemonSet")["perseus-clockd"])
    daemon["metadata"]["name"] = "another"
    found = " ".join(violations([daemon]))
    for what in ("hostPID", "root", "hostPath /run/perseus-dist", "SYS_ADMIN", "SYS_PTRACE"):
        assert what in found


class TestDockerfile:
    """One of three targets, each with a user of its own, its words in exec form and nothing that moves beneath it."""

    STEPS: ClassVar = [
        (step["instruction"], step["value"])
        for step in DockerfileParser(path=str(FOLDER / "Dockerfile")).structure
        if step["instruction"] != "COMMENT"
    ]

    def stage(self, name: str) -> list[tuple[str, str]]:
        begin = next(
            at for at, (word, value) in enumerate(self.STEPS) if word == "FROM" and value.endswith(f" AS {name}")
        )
        rest = self.STEPS[begin + 1 :]
        return rest[: next((at for at, (word, _) in enumerate(rest) if word == "FROM"), len(rest))]

    def test_base_images_are_pinned(self) -> None:
        (image,) = (value for word, value in self.STEPS if word == "ARG" and value.startswith("PYTHON_IMAGE="))
        assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+\.\d+-slim-[a-z]+", image)
        bases = [value.split()[0] for word, value in self.STEPS if word == "FROM"]
        assert bases == ["${PYTHON_IMAGE}", "${PYTHON_IMAGE}", "runtime", "runtime", "runtime"]

    @pytest.mark.parametrize("target", ["planner", "clockd", "trainer"])
    def test_users_and_entry_points(self, target: str) -> None:
        steps = dict(self.stage(target))
        assert isinstance(json.loads(steps["ENTRYPOINT"]), list)
        assert isinstance(json.loads(steps["CMD"]), list)
        user = steps["USER"].partition(":")[0]
        names = {"planner": "perseus-planner", "clockd": "perseus-clockd", "trainer": "gpt"}
        assert int(user) == WORKLOADS[names[target]].pod["securityContext"]["runAsUser"]
        assert (user == "0") == (target == "clockd")
        if target != "trainer":
            assert callable(build_parser().parse_args(json.loads(steps["CMD"])).run)

    def test_what_the_images_are_called_and_which_version_they_are(self) -> None:
        labels = dict(self.stage("runtime"))["LABEL"]
        assert f'org.opencontainers.image.version="{version("perseus-dist")}"' in labels
        images = {container["image"] for workload in WORKLOADS.values() for container in workload.containers}
        targets = ("planner", "clockd", "trainer")
        assert images == {f"perseus-dist-{target}:{version('perseus-dist')}" for target in targets}

    def test_the_extras_are_there(self) -> None:
        known = {*metadata("perseus-dist").get_all("Provides-Extra", [])}
        named = {extra for extras in re.findall(r"\.whl\)\[([a-z,]+)", str(self.STEPS)) for extra in extras.split(",")}
        assert {"planner", "postgres", "web", "agent"} <= named
        assert named | {"deepspeed", "megatron", "pipelining", "report"} <= known

    def test_a_linter_finds_nothing(self) -> None:
        linter = Path(sys.executable).with_name("hadolint")
        done = subprocess.run([linter, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (0, "")
