"""The native planner: the exact frontier, realised plans and their replay. Arrays must have exactly these types."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Int32: TypeAlias = NDArray[np.int32]
_Int64: TypeAlias = NDArray[np.int64]
_Progress: TypeAlias = Callable[[float], bool] | None

class FrontierResult:
    @property
    def time_ps(self) -> _Int64: ...
    @property
    def slope_uw(self) -> _Int64: ...
    @property
    def energy_uj(self) -> _Int64: ...
    @property
    def t_star_ps(self) -> int: ...
    @property
    def share_below(self) -> float: ...
    @property
    def num_augmentations(self) -> int: ...
    @property
    def num_moves(self) -> int: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def num_samples(self) -> int: ...
    def sample(self, index: int) -> tuple[int, _Int64, _Int64, _Int64]: ...

class Menu:
    def __init__(
        self,
        *,
        curve_begin: _Int32,
        clock_mhz: _Int32,
        duration_ps: _Int64,
        effective_uj: _Int64,
        choice_begin: _Int32,
        choice: _Int32,
        curve_of: _Int32,
        previous_on_rank: _Int32,
    ) -> None: ...

def solve_frontier(
    *,
    hull_begin: _Int32,
    hull_ps: _Int64,
    slope_uw: _Int64,
    curve_of: _Int32,
    edge_from: _Int32,
    edge_to: _Int32,
    blocking_uw: int,
    num_to_t_star: int,
    num_beyond: int,
    extra_ps: _Int64,
    tolerance: float = 0.0,
    least_uj: int = 0,
    progress: _Progress = None,
) -> FrontierResult: ...
def replay(
    *, menu: Menu, edge_from: _Int32, edge_to: _Int32, plan: _Int32, latency_ps: _Int64
) -> tuple[int, int, _Int64, _Int64, _Int64, NDArray[np.uint8]]: ...
def realise(
    *,
    menu: Menu,
    edge_from: _Int32,
    edge_to: _Int32,
    frontier: FrontierResult,
    microbatch: _Int32,
    blocking_uw: int,
    latency_ps: _Int64,
    wanted_ps: _Int64,
    progress: _Progress = None,
) -> tuple[_Int64, _Int64, _Int32, NDArray[np.uint16]]: ...
