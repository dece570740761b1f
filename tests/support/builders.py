"""Values that many tests need, with one rank of one GPU as the default."""

from typing import Any

from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.messages.terms import Rank

_ALONE = {"rank": 0, "pp_rank": 0, "dp_rank": 0, "tp_rank": 0, "pp_size": 1, "dp_size": 1, "tp_size": 1}


def make_rank(*, schedule_digest: str, **changes: Any) -> Rank:
    """A rank of the job ``job``."""
    return Rank(**{"job_id": "job", **_ALONE, **changes}, schedule_digest=schedule_digest)


def make_spec(*, schedule: str, **changes: Any) -> RankSpec:
    """The specification of a rank of the job ``job``."""
    return RankSpec(**{"job_id": "job", "local_rank": 0, **_ALONE, **changes}, schedule=schedule)
