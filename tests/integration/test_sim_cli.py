"""``perseus-dist sim``."""

import json
import os
import signal
import subprocess
import sys

PYNVML = "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0); "


def sim(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "perseus_dist", "sim", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_nvidia_ml_py_in_the_command_sees_the_gpus() -> None:
    done = sim("--gpu", "a100", "--count", "4", "--", sys.executable, "-c", PYNVML + "print(n.nvmlDeviceGetCount())")
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first == "4"
    assert len(lines) == 4
    for index, line in enumerate(lines):
        assert line.startswith(f"simulated GPU {index} (NVIDIA A100-SXM4-80GB): ")
        assert " J in " in line
        assert "mean 57.0 W" in line
        assert line.endswith("clock not locked")


def test_gpus_of_several_models() -> None:
    done = sim("--gpu", "a100,a40", "--", sys.executable, "-c", PYNVML + "print(n.nvmlDeviceGetCount())")
    assert done.returncode == 0, done.stderr
    number, *lines = done.stdout.splitlines()
    assert number == "2"
    assert [line.partition(": ")[0] for line in lines] == [
        "simulated GPU 0 (NVIDIA A100-SXM4-80GB)",
        "simulated GPU 1 (NVIDIA A40)",
    ]
    refused = sim("--gpu", "a100,a40", "--count", "3", "--", "true")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.strip().endswith(
        "2 GPU models (a100,a40) for 3 GPUs; name one for all of them, or one for each"
    )


def test_a_clock_left_locked_is_said_and_fails() -> None:
    lock = [sys.executable, "-c", PYNVML + "n.nvmlDeviceSetGpuLockedClocks(h, 900, 900)"]
    done = sim("--count", "2", "--", *lock)
    assert done.returncode == 3
    assert "CLOCK STILL LOCKED at 900 MHz" in done.stdout


def test_json() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(0.1)"]
    done = sim("--json", "--gpu", "h100", "--", *command)
    assert done.returncode == 0
    report = json.loads(done.stdout)
    (gpu,) = report.pop("gpus")
    assert report == {"command": command, "exit_code": 0, "simulated": True, "clocks_left_locked": 0}
    assert gpu["device"] == "simulated GPU"
    assert gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert gpu["locked_mhz"] is None
    assert gpu["seconds"] > 0.1
    assert abs(gpu["energy_j"] - 75.0 * gpu["seconds"]) < 0.01


def test_a_clock_that_is_released_a_moment_later_is_not_left_locked() -> None:
    code = (
        PYNVML + "import os, time; n.nvmlDeviceSetGpuLockedClocks(h, 900, 900)\n"
        "command_lives, ends_with_command = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.close(ends_with_command); os.read(command_lives, 1); time.sleep(0.1)\n"
        "    n.nvmlDeviceResetGpuLockedClocks(h)"
    )
    done = sim("--", sys.executable, "-c", code)
    assert done.returncode == 0
    assert done.stdout.endswith("clock not locked\n")


def test_the_exit_code_is_the_commands() -> None:
    assert sim("--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    assert sim("--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)").returncode == 128 + 9


def test_options_after_the_dashes_are_the_commands() -> None:
    done = sim("--", sys.executable, "-c", "import sys; print(sys.argv[1:])", "--json", "--count", "9")
    assert done.stdout.splitlines()[0] == "['--json', '--count', '9']"
    assert done.stdout.count("simulated GPU") == 1


def test_simulated_work() -> None:
    code = """\
from perseus_dist.simulator import SimulatedWork
work = SimulatedWork.from_environment(gpu=1, num_stages=2)
for kind in ("LOAD", "F", "B", "STEP"):
    work.begin(kind, 1)
    work.end()
"""
    options = ["--json", "--count", "2", "--forward-ms", "20", "--backward-ms", "30", "--imbalance", "0.5"]
    done = sim(*options, "--", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    seconds = [gpu["kernel_seconds"] for gpu in json.loads(done.stdout)["gpus"]]
    assert seconds[0] == 0
    assert abs(seconds[1] - 0.05 * 1.5) < 1e-6


def test_a_simulated_optimizer_step() -> None:
    code = """\
from perseus_dist.simulator import SimulatedWork
work = SimulatedWork.from_environment(gpu=0, num_stages=2)
work.begin("STEP", 0)
work.end()
"""
    options = ["--json", "--forward-ms", "20", "--backward-ms", "30", "--step-ms", "700"]
    done = sim(*options, "--", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    (gpu,) = json.loads(done.stdout)["gpus"]
    assert gpu["kernel_seconds"] == 0
    assert gpu["seconds"] > 0.7


def test_without_times_there_is_no_simulated_work() -> None:
    code = "from perseus_dist.simulator import SimulatedWork as W; print(W.from_environment(gpu=0, num_stages=1))"
    assert sim("--", sys.executable, "-c", code).stdout.splitlines()[0] == "None"


def test_a_gpu_overheats_and_cools_down() -> None:
    code = (
        PYNVML + "import time; n.nvmlDeviceSetGpuLockedClocks(h, 1410, 1410)\n"
        "seen = []\n"
        "until_s = time.monotonic() + 120\n"
        "while len(seen) < 3 and time.monotonic() < until_s:\n"
        "    now = n.nvmlDeviceGetCurrentClocksEventReasons(h) & 0x20\n"
        "    seen += [now] if seen[-1:] != [now] else []\n"
        "    time.sleep(0.02)\n"
        "print(seen)\n"
        "n.nvmlDeviceResetGpuLockedClocks(h)"
    )
    done = sim("--throttle", "0:none@1.5", "--throttle", "0:1005@0.8", "--", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "[0, 32, 0]"


def test_unprivileged() -> None:
    code = PYNVML + "n.nvmlDeviceSetGpuLockedClocks(h, 900, 900)"
    done = sim("--unprivileged", "--", sys.executable, "-c", code)
    assert done.returncode == 1
    assert "NVMLError_NoPermission" in done.stderr


def test_signals_are_passed_on() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        code = (
            "import signal, sys, time\n"
            f"signal.signal({int(number)}, lambda *_: sys.exit(5))\n"
            "print('ready', flush=True)\n"
            "while True: time.sleep(0.1)"
        )
        command = [sys.executable, "-m", "perseus_dist", "sim", "--", sys.executable, "-c", code]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        os.kill(child.pid, number)
        output, _ = child.communicate(timeout=30)
        assert child.returncode == 5
        assert "simulated GPU 0" in output


def test_many_signals_at_once_end_nobody() -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGHUP, lambda *_: None)\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.1)"
    )
    command = [sys.executable, "-m", "perseus_dist", "sim", "--", sys.executable, "-c", code]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    for _ in range(2000):
        os.kill(child.pid, signal.SIGHUP)
    os.kill(child.pid, signal.SIGTERM)
    output, _ = child.communicate(timeout=30)
    assert child.returncode == 5
    assert "simulated GPU 0" in output


def test_the_command_may_be_cut_off_by_a_pipe() -> None:
    done = sim("--", "sh", "-c", "yes | head -n 1")
    assert done.stdout.splitlines()[0] == "y"
    assert done.stderr == ""


def test_bad_input_is_one_line_and_2() -> None:
    for arguments, words in (
        (["--count", "0", "--", "true"], "expected 1 to 64"),
        (["--", "no-such-command-here"], "cannot be run"),
        (["--gpu", "v100", "--", "true"], "GPU 'v100': the simulator has a100, a40, h100, h200"),
        (["--forward-ms", "35", "--", "true"], "needs both --forward-ms and --backward-ms"),
        (["--imbalance", "0.1", "--", "true"], "needs both --forward-ms and --backward-ms"),
        (["--step-ms", "5", "--", "true"], "needs both --forward-ms and --backward-ms"),
        (["--transfer-ms", "5", "--", "true"], "needs both --forward-ms and --backward-ms"),
        (["--forward-ms", "35", "--backward-ms", "0", "--", "true"], "--backward-ms: saw '0', expected the time in ms"),
        (
            ["--forward-ms", "nan", "--backward-ms", "65", "--", "true"],
            "--forward-ms: saw 'nan', expected the time in ms",
        ),
        (["--throttle", "0:1005", "--", "true"], "--throttle '0:1005': give GPU:MHZ@WHEN"),
        (["--throttle", "1:1005@3", "--", "true"], "throttle of GPU 1: there are 0 to 0"),
        (["--throttle", "0:1007@3", "--", "true"], "clock 1007 MHz"),
        ([], "COMMAND"),
    ):
        done = sim(*arguments)
        assert done.returncode == 2
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
