"""Stragglers of a run: each one's course, and what waiting for it took and saved."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perseus_dist.report.analysis.episodes import Episode, episodes_of
from perseus_dist.report.analysis.iterations import Iterations
from perseus_dist.report.analysis.periods import periods_of
from perseus_dist.report.analysis.pipelines import FollowedSwitch, PipelineIterations, followed_switches, side_by_side
from perseus_dist.report.analysis.waits import StragglerPeriod
from perseus_dist.runlog.files import RunFiles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StragglerFigures:
    """All that there is to say of them.

    Attributes:
        pipelines: Iterations of all pipelines whose ranks are known.
        switches: All of the run, those for the target's sake too.
        episodes: In the order in which they began; at least one.
        periods: In which pipelines waited for others.
    """

    pipelines: PipelineIterations
    switches: tuple[FollowedSwitch, ...]
    episodes: tuple[Episode, ...]
    periods: tuple[StragglerPeriod, ...]

    def document(self) -> dict[str, Any]:
        """All figures of stragglers as they stand in ``report.json``."""
        return {
            "episodes": [episode.document() for episode in self.episodes],
            "periods": [period.document() for period in self.periods],
        }


def straggler_figures(run: RunFiles, pipelines: Mapping[int, Iterations], notes: list[str]) -> StragglerFigures | None:
    """None where there was no straggler.

    Args:
        run: The run.
        pipelines: Its iterations by dp_rank.
        notes: Gets a sentence for every throttle that was injected and not detected.
    """
    beside = side_by_side(pipelines)
    switches = followed_switches(run.events, beside)
    pp_rank_of = {rank: timeline.pp_rank for rank, timeline in run.timelines.items()}
    episodes = episodes_of(run.events, run.injections, switches, pp_rank_of)
    answered = {(one.rank, step.injected_iteration) for one in episodes for step in one.steps}
    notes.extend(
        f"no verdict answers the throttle of rank {one.rank} to {one.thermal_cap_mhz} MHz, injected at iteration "
        f"{one.iteration}"
        for one in run.injections
        if one.thermal_cap_mhz is not None and (one.rank, one.iteration) not in answered
    )
    if not episodes:
        return None
    periods = periods_of(run, beside, switches, episodes)
    return StragglerFigures(pipelines=beside, switches=switches, episodes=episodes, periods=periods)
