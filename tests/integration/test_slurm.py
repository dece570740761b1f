"""Jobs under a real Slurm: opted in by a comment, killed, and accounted for; others are untouched."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import slurm_database
from slurm_cluster import NODES, PAGE, ROOT, Cluster, SlurmJob, has_cgroups, processes_of, refusal, slurm_cluster
from slurm_training import are_unlocked, record_of, submit_training
from waiting import wait_until

from perseus_dist.runlog.accounting.record_files import records_in
from perseus_dist.simulation.frameworks.training_run import free_port
from perseus_dist.simulator.machine import SimulatedMachine

MEGATRON = Path(os.environ.get("PERSEUS_TEST_MEGATRON", ROOT / "build" / "megatron")) / "0.17.1"
HAS_DATABASE = not slurm_database.refusal()

pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(bool(refusal()), reason=refusal() or "possible"),
]


@pytest.fixture(scope="module")
def machine() -> Iterator[SimulatedMachine]:
    """Of both nodes: the first GPU is the first node's."""
    with SimulatedMachine("a100", count=len(NODES)) as machine:
        yield machine


@pytest.fixture(scope="module")
def cluster(machine: SimulatedMachine) -> Iterator[Cluster]:
    with slurm_cluster(machine.environment(), with_database=HAS_DATABASE) as cluster:
        if HAS_DATABASE:
            cluster.call("sacctmgr", "-i", "add", "account", "nlp")
            cluster.call("sacctmgr", "-i", "add", "user", "root", "account=nlp")
        yield cluster


def test_a_job_that_asks_for_perseus_runs_under_it_and_is_accounted_for(
    cluster: Cluster, machine: SimulatedMachine
) -> None:
    job = submit_training(cluster, machine, "--comment=perseus", num_iterations=60)
    assert job.wait() == "COMPLETED", job.story()
    assert are_unlocked(machine)
    record = record_of(cluster, job)
    assert record.is_complete, record.reason
    assert (record.submission.user, record.submission.project) == ("root", "nlp")
    assert record.num_gpus == 2
    assert record.energy_j
    assert record.saved_j > 0
    assert not list(cluster.opted_in.iterdir())
    findings = json.loads(cluster.call("sh", "-c", "perseus-dist doctor --json || true"))["findings"]
    settings = [finding["what"] for finding in findings if finding["subject"] == "Slurm"]
    assert len(settings) == 1 + (not has_cgroups()), settings
    assert "prolog, epilog and those of tasks are set" in settings
    comment = job.comment()
    assert comment.startswith("perseus: drew ")
    assert re.search(r"saved .* kWh \(.* %, between .* kWh\), lost .* s$", comment), comment
    if HAS_DATABASE:
        assert job.admin_comment() == comment.lower()  # as sacctmgr writes all of them
    shown = cluster.call("perseus-dist", "accounting", "--records", str(cluster.records), "--json")
    (sums,) = json.loads(shown)["sums"]
    assert sums["name"] == "root"


def test_a_cluster_that_is_interrupted_leaves_no_process() -> None:
    with suppress(KeyboardInterrupt), slurm_cluster({}) as interrupted:
        job = interrupted.submit("--wrap", "srun sleep 10000")
        wait_until(lambda: job.state() == "RUNNING")
        wait_until(lambda: b"slurmstepd" in b"".join(map(command_of, processes_of(interrupted))))
        raise KeyboardInterrupt
    wait_until(lambda: processes_of(interrupted) == [])


def command_of(number: int) -> bytes:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_job_that_is_killed_leaves_no_clock_locked_and_an_incomplete_record(
    cluster: Cluster, machine: SimulatedMachine
) -> None:
    job = submit_training(cluster, machine, "--comment=perseus", num_iterations=100_000)
    wait_until(lambda: not are_unlocked(machine))
    cluster.call("scancel", "--signal=KILL", "--full", job.number)
    assert job.wait() == "CANCELLED"
    wait_until(lambda: are_unlocked(machine))
    record = record_of(cluster, job)
    assert not record.is_complete
    assert record.submission.slurm_job_id == job.number
    assert {path.stat().st_mode & 0o777 for path in cluster.records.glob("energy-*.json")} == {0o644}
    assert job.comment() == "perseus"
    if HAS_DATABASE:
        assert job.admin_comment().endswith("; 1 of 1 runs incomplete")


def test_the_epilog_finds_programs_where_slurmd_gives_it_no_path(cluster: Cluster) -> None:
    (cluster.root / "programs").mkdir()
    command = cluster.root / "programs" / "own-perseus-dist"
    command.write_text(
        "#!/bin/bash\ncase $2 in\n--finish) echo record of $(basename $3) by $(id -un) ;;\n"
        f"--collect) cat >{cluster.root}/collected ;;\nesac\n"
    )
    command.chmod(0o755)
    (cluster.root / "reporting").write_text("#!/bin/bash\nmkdir perseus-$SLURM_JOB_ID\n")
    with (cluster.scripts / "perseus.conf").open("a") as settings:
        settings.write(f"PATH=$PATH:{cluster.root}/programs\nPERSEUS_DIST=own-perseus-dist\n")
    try:
        job = cluster.submit("--nodes=1", "reporting")
        assert job.wait() == "COMPLETED"
    finally:
        cluster.configure()
    assert (cluster.root / "collected").read_text() == f"record of perseus-{job.number} by root\n"


def test_what_a_job_of_an_array_did_is_said_of_that_one_alone(cluster: Cluster) -> None:
    """The last one to begin has the array's number."""
    accounting = cluster.root / "accounting"
    accounting.write_text('#!/bin/bash\n[ "$2" != --line ] || echo "perseus: drew $SLURM_JOB_ID"\n')
    accounting.chmod(0o755)
    (cluster.root / "array").write_text(
        '#!/bin/bash\nif [ "$SLURM_JOB_ID" != "$SLURM_ARRAY_JOB_ID" ]; then sleep 1000; fi\n'
        "sleep 5\nmkdir perseus-$SLURM_JOB_ID\necho {} >perseus-$SLURM_JOB_ID/job.json\n"
    )
    with (cluster.scripts / "perseus.conf").open("a") as settings:
        settings.write(f"PERSEUS_DIST={accounting}\n")
    try:
        array = cluster.submit("--nodes=1", "--array=0-1", "--comment=perseus of ours", "array")
        other, job = (SlurmJob(cluster, f"{array.number}_{index}") for index in range(2))
        wait_until(lambda: job.state() == "COMPLETED")
        said = (other.state(), job.comment(), other.comment())
        cluster.call("scancel", "--signal=KILL", "--full", other.number)
        other.wait()
    finally:
        cluster.configure()
    assert said == ("RUNNING", f"perseus of ours | perseus: drew {array.number}", "perseus of ours")
    if HAS_DATABASE:
        wait_until(lambda: job.admin_comment() != "")
        assert (job.admin_comment(), other.admin_comment()) == (f"perseus: drew {array.number}", "")


def test_the_epilog_writes_down_what_it_could_not_do(cluster: Cluster) -> None:
    (cluster.root / "reporting").write_text("#!/bin/bash\nmkdir perseus-$SLURM_JOB_ID\n")
    with (cluster.scripts / "perseus.conf").open("a") as settings:
        settings.write("PERSEUS_DIST=/nowhere/perseus-dist\n")
    try:
        job = cluster.submit("--nodes=1", "reporting")
        assert job.wait() == "COMPLETED"
    finally:
        cluster.configure()
    told = cluster.log.read_text()
    missing = "timeout: failed to run command '/nowhere/perseus-dist': No such file or directory"
    assert f"after job {job.number}, release ended with status 127: {missing}" in told
    assert f"job {job.number} left no energy record in {job.report}: " in told


def test_the_epilog_unlocks_what_no_process_accounts_for(cluster: Cluster, machine: SimulatedMachine) -> None:
    lock = "import pynvml as n; n.nvmlInit(); n.nvmlDeviceSetGpuLockedClocks(n.nvmlDeviceGetHandleByIndex(0), 900, 900)"
    (cluster.root / "lock").write_text(f"#!/bin/bash\n{shlex.quote(sys.executable)} -c {lock!r}\nsleep 1000\n")
    job = cluster.submit("--nodes=1", "lock")
    wait_until(lambda: not are_unlocked(machine))
    cluster.call("scancel", "--signal=KILL", "--full", job.number)
    job.wait()
    assert are_unlocked(machine)


@pytest.mark.skipif(not HAS_DATABASE, reason=slurm_database.refusal() or "possible")
def test_an_admin_comment_of_others_stays(cluster: Cluster, machine: SimulatedMachine) -> None:
    job = submit_training(cluster, machine, "--comment=perseus", num_iterations=100_000)
    wait_until(lambda: not are_unlocked(machine))
    cluster.call("scontrol", "update", f"JobId={job.number}", "AdminComment=watch this one")
    cluster.call("scancel", "--signal=KILL", "--full", job.number)
    job.wait()
    wait_until(lambda: job.admin_comment() != "")
    assert not record_of(cluster, job).is_complete
    assert job.admin_comment() == "watch this one"


def test_a_job_that_does_not_ask_is_untouched(cluster: Cluster, machine: SimulatedMachine) -> None:
    num_sets = [gpu.state().num_sets for gpu in machine.gpus]
    (cluster.root / "variables").write_text("#!/bin/bash\nenv\n")
    shown = cluster.submit("--nodes=1", "variables")
    assert shown.wait() == "COMPLETED"
    assert "\nPERSEUS=" not in shown.output()
    assert "\nPERSEUS_REPORT=" not in shown.output()
    job = submit_training(cluster, machine, num_iterations=5)
    assert job.wait() == "COMPLETED"
    assert [gpu.state().num_sets for gpu in machine.gpus] == num_sets
    assert not job.report.exists()
    assert not HAS_DATABASE or job.admin_comment() == ""
    assert job.number not in [one.submission.slurm_job_id for one in records_in(cluster.records)]


def test_a_job_that_another_one_submits_asks_for_itself(cluster: Cluster) -> None:
    (cluster.root / "inner").write_text("#!/bin/bash\nsrun --nodes=1 --ntasks=1 env\n")
    (cluster.root / "outer").write_text(
        "#!/bin/bash\nsubmit='sbatch --parsable --nodes=1 --output=out.%j'\n"
        "$submit inner\n$submit --comment=perseus inner\n"
        "PERSEUS_REPORT=$PWD/own $submit --comment=perseus inner\nsrun --nodes=1 --ntasks=1 env\n"
    )
    outer = cluster.submit("--nodes=1", "--comment=perseus", "outer")
    assert outer.wait() == "COMPLETED", outer.story()
    silent, asking, named = (SlurmJob(cluster, number) for number in outer.output().split()[:3])
    assert [job.wait() for job in (silent, asking, named)] == ["COMPLETED"] * 3
    assert variables_of(outer) == {"PERSEUS=1", f"PERSEUS_REPORT={outer.report}"}
    assert variables_of(silent) == set()
    assert variables_of(asking) == {"PERSEUS=1", f"PERSEUS_REPORT={asking.report}"}
    assert variables_of(named) == {"PERSEUS=1", f"PERSEUS_REPORT={cluster.root}/own"}


def variables_of(job: SlurmJob) -> set[str]:
    """Those that examples look at, in a job that prints its environment."""
    return set(re.findall(r"^(?:PERSEUS|PERSEUS_REPORT)=.*$", job.output(), flags=re.MULTILINE))


def test_users_may_read_what_is_theirs_whatever_umask_slurmd_has(cluster: Cluster) -> None:
    (cluster.root / "noted").write_text("#!/bin/bash\nstat --format=%a opted-in opted-in/* dcgm dcgm/0\n")
    job = cluster.submit("--nodes=1", "--gres=gpu:2", "--comment=perseus", "noted")
    assert job.wait() == "COMPLETED"
    assert job.output().split() == ["755", "644", "755", "644"]


def test_gpus_are_written_down_for_dcgm_exporter_as_long_as_a_job_has_them(cluster: Cluster) -> None:
    (cluster.root / "mapped").write_text("#!/bin/bash\ngrep -H . dcgm/*\n")
    cluster.dcgm_jobs.mkdir(exist_ok=True)
    (cluster.dcgm_jobs / "1").write_text("a job that shares it\n")
    job = cluster.submit("--nodes=1", "--gres=gpu:2", "mapped")
    assert job.wait() == "COMPLETED"
    assert job.output() == f"dcgm/0:{job.number}\ndcgm/1:a job that shares it\ndcgm/1:{job.number}\n"
    assert [path.name for path in cluster.dcgm_jobs.iterdir()] == ["1"]
    assert (cluster.dcgm_jobs / "1").read_text() == "a job that shares it\n"


def test_a_node_that_is_not_fit_says_why_and_fails_no_job(cluster: Cluster) -> None:
    (cluster.root / "true").write_text("#!/bin/bash\ntrue\n")
    try:
        cluster.configure(without_driver=NODES[0])
        job = cluster.submit("--nodelist=n1", "--comment=perseus", "true")
        assert job.wait() == "COMPLETED"
        assert f"job {job.number} runs without Perseus: perseus: driver:" in cluster.log.read_text()
        cluster.configure(without_driver=NODES[0], on_failure="drain")
        job = cluster.submit("--nodelist=n1", "--comment=perseus", "true")
        assert job.wait() == "COMPLETED"
        assert "Reason=perseus: driver:" in cluster.call("scontrol", "show", "node", "n1")
    finally:
        cluster.configure()
        cluster.call("scontrol", "update", "NodeName=n1", "State=RESUME")


def submit_example(cluster: Cluster, framework: str, **environ: str) -> SlurmJob:
    """As the page says to try it on simulated GPUs."""
    if not (examples := cluster.root / "examples").is_symlink():
        examples.symlink_to(ROOT / "examples")
    pattern = rf"^(?:\w+=\S+ )*sbatch (.*{framework}.sbatch --simulate.*)$"
    (line,) = re.findall(pattern, PAGE.read_text(), flags=re.MULTILINE)
    cluster.environ.update(environ)
    return cluster.submit(*shlex.split(line))


def test_the_example_for_deepspeed_trains_under_the_plan(cluster: Cluster) -> None:
    job = submit_example(cluster, "deepspeed")
    assert job.wait() == "COMPLETED", job.story()
    record = record_of(cluster, job)
    assert (record.framework, record.submission.job_name) == ("deepspeed", "deepspeed-gpt")
    assert record.is_complete, record.reason
    assert record.energy_j


@pytest.mark.skipif(not MEGATRON.is_dir(), reason=f"no Megatron-LM in {MEGATRON}")
def test_the_example_for_megatron_trains_and_is_accounted_for(cluster: Cluster) -> None:
    job = submit_example(cluster, "megatron", MEGATRON_PATH=str(MEGATRON), MASTER_PORT=str(free_port()))
    assert job.wait() == "COMPLETED", job.story()
    assert "lm loss" in job.output()
    record = record_of(cluster, job)
    assert (record.framework, record.submission.job_name) == ("megatron-core", "megatron-gpt")
    assert record.is_complete, record.reason
    assert (record.num_gpus, len(record.gpus)) == (4, 4)
    assert record.energy_j
