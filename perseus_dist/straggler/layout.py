"""Where the ranks of a job stand, and which of them can be compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_dist.errors import PerseusError

IndexArray = NDArray[np.intp]


class StragglerError(PerseusError):
    """Ranks that make no grid, or a straggler that cannot be: what the detector and the selection refuse to take."""


class RankCoords(NamedTuple):
    """Stage, pipeline and place within the tensor-parallel group of one rank."""

    pp_rank: int
    dp_rank: int
    tp_rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """All ranks of a job.

    A *cell* is one stage of one pipeline: a tensor-parallel group. Its ranks wait for each other within every
    instruction, so time tells cells apart, and NVML alone tells apart the ranks of a cell.

    Attributes:
        rank_of: (dp_size, pp_size, tp_size) rank at each place.
        cell_of: (num_ranks) ``dp_rank * pp_size + pp_rank``.
        kinds: Names of the instruction kinds that times are reported of, for example ``("F", "B")``.
        kind_shares: (num_kinds) share of each kind in what a rank computes; they sum to 1.
    """

    rank_of: IndexArray
    cell_of: IndexArray
    kinds: tuple[str, ...]
    kind_shares: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        places: Sequence[RankCoords],
        *,
        kinds: Sequence[str] = ("F", "B"),
        kind_shares: Sequence[float] | None = None,
    ) -> "Layout":
        """The layout of a job whose rank ``r`` stands at ``places[r]``.

        Args:
            places: One a rank; together a full grid.
            kinds: Names of the instruction kinds, in the order in which times are reported.
            kind_shares: How much of a rank's time each kind takes, in any unit; equal where left out.

        Raises:
            StragglerError: A place is missing or taken twice, or the kinds and their shares do not fit.
        """
        shape = tuple(1 + max((getattr(place, axis) for place in places), default=-1) for axis in _AXES)
        if 0 in shape or len(places) != shape[0] * shape[1] * shape[2]:
            raise StragglerError(
                f"saw {len(places)} ranks for dp x pp x tp = {' x '.join(map(str, shape))}; give one for each place"
            )
        rank_of = np.full(shape, -1, dtype=np.intp)
        for rank, place in enumerate(places):
            where = (place.dp_rank, place.pp_rank, place.tp_rank)
            if min(where) < 0 or rank_of[where] >= 0:
                raise StragglerError(
                    f"rank {rank} and rank {rank_of[where]} both stand at dp {place.dp_rank}, pp {place.pp_rank}, "
                    f"tp {place.tp_rank}; give each rank a place of its own"
                )
            rank_of[where] = rank
        shares = np.asarray(kind_shares if kind_shares is not None else [1.0] * len(kinds), dtype=np.float64)
        if not kinds or len(shares) != len(kinds) or not np.all(np.isfinite(shares)) or shares.min() <= 0:
            raise StragglerError(
                f"saw shares {shares.tolist()} for the kinds {', '.join(kinds) or 'none'}; give each kind one above 0"
            )
        cell_of = np.array([place.dp_rank * shape[1] + place.pp_rank for place in places], dtype=np.intp)
        return cls(rank_of=rank_of, cell_of=cell_of, kinds=tuple(kinds), kind_shares=shares / shares.sum())

    @property
    def num_ranks(self) -> int:
        """All ranks of the job."""
        return len(self.cell_of)

    @property
    def dp_size(self) -> int:
        """Number of pipelines."""
        return int(self.rank_of.shape[0])

    @property
    def pp_size(self) -> int:
        """Stages of a pipeline."""
        return int(self.rank_of.shape[1])

    @property
    def num_cells(self) -> int:
        """Number of tensor-parallel groups, over all pipelines."""
        return self.dp_size * self.pp_size

    @property
    def stage_of_cell(self) -> IndexArray:
        """(num_cells) stage of each cell."""
        return np.arange(self.num_cells) % self.pp_size

    def ranks_of_cell(self, cell: int) -> list[int]:
        """The ranks of one tensor-parallel group."""
        ranks: list[int] = self.rank_of[cell // self.pp_size, cell % self.pp_size].tolist()
        return ranks


_AXES = ("dp_rank", "pp_rank", "tp_rank")
