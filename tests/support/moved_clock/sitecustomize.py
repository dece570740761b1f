"""For a process with this folder in PYTHONPATH: a wall clock that jumps two days forth and back, every 2 s."""

import time

_DAY_S = 86_400.0
_JUMP_S = 2.0

_true_time, _true_time_ns = time.time, time.time_ns


def _offset_s() -> float:
    return _DAY_S if time.monotonic() // _JUMP_S % 2 else -_DAY_S


time.time = lambda: _true_time() + _offset_s()
time.time_ns = lambda: _true_time_ns() + round(1e9 * _offset_s())
