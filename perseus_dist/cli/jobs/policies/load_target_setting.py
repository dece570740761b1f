"""Sets the load targets of a file at a planner: all of them, or none where that can be had."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from perseus_dist.cli.jobs.planner_client import TIMEOUT_S, PlannerCallError
from perseus_dist.cli.jobs.policies.load_target_file import LoadTargetRow

if TYPE_CHECKING:
    from perseus_dist.rpc.v1 import planner_pb2 as pb
    from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

_MAX_NAMED = 5
_NOT_KNOWN = "; which load targets of the file are set is not known: see 'perseus-dist policy show'"


class LoadTargetSetting:
    """Sets load targets of one budget, one call each, and takes them back where a later one is refused.

    Args:
        budget: Its name.
        rows: The load targets.

    Attributes:
        outcome: The end of a sentence: what became of the others where one was refused or the user has interrupted.
    """

    def __init__(self, budget: str, rows: Sequence[LoadTargetRow]) -> None:
        self._budget = budget
        self._rows = rows
        self.outcome = ""

    def set_all(self, planner: "PlannerStub", metadata: tuple[tuple[str, str], ...]) -> "pb.PolicyStatus":
        """Set them.

        Returns:
            What the planner says after the last.

        Raises:
            grpc.RpcError: One was refused. Those before it are taken back, as on ``KeyboardInterrupt``.
        """
        import grpc

        from perseus_dist.rpc.v1 import planner_pb2 as pb

        before = {} if len(self._rows) == 1 else self._in_force(planner, metadata)
        status = pb.PolicyStatus()
        for row in self._rows:
            target = pb.LoadTarget(
                name=row.name,
                budget=self._budget,
                start_s=row.start_s,
                end_s=row.end_s,
                watts=row.watts,
                best_effort=row.best_effort,
            )
            try:
                request = pb.SetLoadTargetRequest(load_target=target)
                status = planner.SetLoadTarget(request, timeout=TIMEOUT_S, metadata=metadata)
            except (grpc.RpcError, KeyboardInterrupt):
                if len(self._rows) > 1:
                    self.outcome = _NOT_KNOWN  # if the user interrupts what follows
                    self.outcome = self._take_back(before, planner, metadata)
                raise
        return status

    def with_outcome(self, error: PlannerCallError) -> PlannerCallError:
        """The planner's refusal of one load target, and whether others of the file are in force."""
        return type(error)(f"{error}{self.outcome}")

    def _in_force(self, planner: "PlannerStub", metadata: tuple[tuple[str, str], ...]) -> dict[str, "pb.LoadTarget"]:
        """The budget's load targets of the names in the file, as the planner has them now."""
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        names = {row.name for row in self._rows}
        status = planner.GetPolicy(pb.GetPolicyRequest(), timeout=TIMEOUT_S, metadata=metadata)
        ours = (one for one in status.budgets if one.budget.name == self._budget)
        return {target.name: target for one in ours for target in one.load_targets if target.name in names}

    def _take_back(
        self, before: dict[str, "pb.LoadTarget"], planner: "PlannerStub", metadata: tuple[tuple[str, str], ...]
    ) -> str:
        """Have the planner as it was before the first row; how far that came, in words."""
        import grpc

        from perseus_dist.rpc.v1 import planner_pb2 as pb

        left, reason = [], ""
        try:
            now = self._in_force(planner, metadata)
            for name in reversed([row.name for row in self._rows if now.get(row.name) != before.get(row.name)]):
                try:
                    if name in before:
                        again = pb.SetLoadTargetRequest(load_target=before[name])
                        planner.SetLoadTarget(again, timeout=TIMEOUT_S, metadata=metadata)
                    else:
                        clearing = pb.ClearLoadTargetRequest(budget=self._budget, name=name)
                        planner.ClearLoadTarget(clearing, timeout=TIMEOUT_S, metadata=metadata)
                except grpc.RpcError as error:
                    left.append(name)
                    reason = error.details() or ""
        except grpc.RpcError:
            return _NOT_KNOWN
        if left:
            return f"; of the file {_named(left)} stay set, as they could not be taken back ({reason}): " + _advice(
                [name for name in left if name not in before], [before[name] for name in left if name in before]
            )
        return "; no load target of the file is set, and those that they replaced are as they were"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _advice(new: Sequence[str], replaced: Sequence["pb.LoadTarget"]) -> str:
    """The remedy for load targets that stay set; without those that they replaced there may be no cap."""
    if not replaced:
        return "clear them"
    again = [f"{one.name} was {one.watts:,.0f} W from {_local(one.start_s)} to {_local(one.end_s)}" for one in replaced]
    clearing = f"clear {_named(new)}; " if new else ""
    return f"{clearing}{', '.join(again)}: set that again, with --best-effort if need be"


def _local(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).astimezone().isoformat(timespec="seconds")
