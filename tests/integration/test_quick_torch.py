"""Below tests torch's compiler is left out until it is asked for, and is then the real one."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """\
import sys, torch
parameter = torch.ones(2, requires_grad=True)
optimizer = torch.optim.Adam([parameter])
parameter.sum().backward()
optimizer.step()
optimizer.zero_grad()
assert torch.compile(len) is torch.compile()(len) is len
print("torch._dynamo.eval_frame" in sys.modules)
import torch._dynamo.config
from torch._dynamo import eval_frame
print(torch._dynamo.__file__.endswith("__init__.py"), torch._dynamo.config is sys.modules["torch._dynamo.config"])
print(torch._dynamo.eval_frame is eval_frame, torch._dynamo is sys.modules["torch._dynamo"])
optimizer.step()
"""


@pytest.mark.stress
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_an_optimizer_loads_no_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["False", "True", "True", "True", "True"], "")


SHAPES = """\
import sys, torch
far = torch.empty(2, 3, device="meta")
print("torch._decomp.decompositions" in sys.modules)
{ask}
print(torch._meta_registrations is sys.modules["torch._meta_registrations"], torch.cdist(far, far).shape)
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize(
    "ask",
    [
        "from torch._meta_registrations import device_hint",
        *(
            pytest.param(f"import {name}", marks=pytest.mark.stress)
            for name in ("torch.distributed.tensor", "torch._dynamo.config")
        ),
    ],
)
def test_shapes_of_what_is_not_computed_come_with_what_asks_for_them(ask: str) -> None:
    """Without them ``cdist`` has none on the device ``meta``."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SHAPES.format(ask=ask)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.splitlines(), done.stderr) == (["False", "True torch.Size([2, 2])"], "")
