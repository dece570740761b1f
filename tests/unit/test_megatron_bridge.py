"""Megatron-Bridge's loop as Perseus sees it: its callbacks, its loggers, its handler of signals."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from perseus_dist.megatron import activation, adapter, requested
from perseus_dist.megatron.loops.bridge_loop import BridgeLoop
from perseus_dist.training.options import PerseusOptions

BRIDGE = Path(os.environ.get("PERSEUS_TEST_BRIDGE", Path(__file__).parents[2] / "build" / "megatron-bridge"))
CALLBACKS = BRIDGE / "megatron" / "bridge" / "training" / "callbacks.py"

# Bridge's own callbacks, without the packages above them, which take seconds to import.
PROGRAM = f"""
import sys
from types import ModuleType
for name in ("megatron", "megatron.bridge", "megatron.bridge.training"):
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = [{str(BRIDGE)!r} + "/" + name.replace(".", "/")]
from megatron.bridge.training.callbacks import Callback, CallbackContext, normalize_callbacks
from perseus_dist.megatron import PerseusCallback, adapter
from perseus_dist.megatron.requested import requested_options
from perseus_dist.training.options import PerseusOptions
callback = PerseusCallback(PerseusOptions(job="bridge"))
marked = []
adapter._attachment.mark = marked.append
manager = normalize_callbacks([callback])
for event in sorted(manager.events):
    manager.fire(event, CallbackContext(state=None, model=[]))
print(isinstance(callback, Callback), requested_options().job, marked)
"""


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_options", None), ("_given", None), ("_refusal", None), ("_is_refusal_said", False)):
        monkeypatch.setattr(requested, name, value)
    for name in ("RANK", "PERSEUS_DISABLE", "PERSEUS_ENABLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.skipif(
    not CALLBACKS.is_file(), reason=f"no Megatron-Bridge in {BRIDGE}; PERSEUS_TEST_BRIDGE names another"
)
def test_the_callback_asks_and_releases_clocks_after_training() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("True bridge ['checkpoint']\n", "")


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({}, None),
        ({"PERSEUS_ENABLE": "0"}, None),
        ({"PERSEUS_ENABLE": "1"}, PerseusOptions()),
        ({"PERSEUS_ENABLE": "1", "PERSEUS_DISABLE": "1"}, None),
    ],
)
def test_the_environment_asks(
    environment: dict[str, str], options: PerseusOptions | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activation, "_is_active", False)
    monkeypatch.setattr(activation, "when_imported", lambda *_: None)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    activation.activate()
    assert requested.requested_options() == options


def test_what_a_script_asks_for_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation, "_is_active", False)
    monkeypatch.setattr(activation, "when_imported", lambda *_: None)
    monkeypatch.setenv("PERSEUS_ENABLE", "1")
    activation.install(PerseusOptions(job="script"))
    activation.install()
    assert requested.requested_options() == PerseusOptions(job="script")


def test_its_writers_and_how_often_it_writes() -> None:
    state: Any = SimpleNamespace(
        tensorboard_logger=None,
        wandb_logger="wandb",
        cfg=SimpleNamespace(logger=SimpleNamespace(tensorboard_log_interval=5)),
    )
    writers = BridgeLoop(state).writers()
    assert (writers.tensorboard, writers.wandb, writers.mlflow, writers.interval) == (None, "wandb", None, 5)
    assert writers
    state.wandb_logger = None
    assert not BridgeLoop(state).writers()


@pytest.mark.parametrize("has_seen", [False, True])
def test_its_handler_of_signals(has_seen: bool) -> None:  # noqa: FBT001
    state = SimpleNamespace(_signal_handler=SimpleNamespace(_signal_received=has_seen))
    assert BridgeLoop(state).was_asked_to_end() == has_seen
    assert not BridgeLoop(SimpleNamespace(_signal_handler=None)).was_asked_to_end()


def test_another_bridge_is_refused_by_its_name() -> None:
    module = ModuleType("megatron.bridge.training.train")
    module.__dict__["train"] = lambda: None
    adapter.patch_bridge(module)
    refusal = requested.refusal()
    assert refusal is not None
    assert refusal.startswith("Megatron-Bridge ")
    assert "(megatron.bridge.training.train has no function train_step); supported: 0.3" in refusal
