"""The common part of gRPC calls on power budgets and price policies: who calls, and the answer."""

from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.operator_calls import owner_of
from perseus_dist.planner.runtime.policy_calls import PolicyCalls
from perseus_dist.planner.service.budget_wire import price_state_to_wire, state_to_wire
from perseus_dist.planner.service.rpc_guard import Context, RpcGuard
from perseus_dist.rpc.v1 import planner_pb2 as pb


class PolicyChanges:
    """Changes to policies of a planner over gRPC.

    Attributes:
        calls: The changes themselves, each recorded.
    """

    def __init__(self, jobs: Jobs, guard: RpcGuard) -> None:
        self._jobs = jobs
        self._guard = guard
        self.calls = PolicyCalls(jobs, guard.access.audit)

    async def called(self, method: str, context: Context) -> Caller:
        """Count a call; who calls. Of several replicas the one that keeps the policies goes on.

        Raises:
            RefusalError: A token is needed and there is none, or it counts no more; or another replica keeps policies.
        """
        self._jobs.counters.calls[method] += 1
        caller = self._guard.caller(context)
        await self.calls.locate()
        return caller

    def status(self, caller: Caller) -> bytes:
        """All policies that the caller may change, or sees a job of."""
        actors = {actor.job.job_id: actor for actor in self._jobs.all()}
        visible = {job_id for job_id, actor in actors.items() if caller.may(Role.VIEW, job_id, owner_of(actor))}
        budgets = self._jobs.budgets
        return pb.PolicyStatus(
            budgets=[
                state_to_wire(state, visible, budgets.coming_load_targets(state.budget.name))
                for state in budgets.seen_by(caller, visible)
            ],
            prices=[
                price_state_to_wire(
                    state,
                    # Those that have not come yet are named to callers who may change the policy.
                    {*visible, *(state.policy.jobs if caller.may_limit(state.policy.jobs) else ())},
                    {job_id: actor.job.chosen_pace for job_id, actor in actors.items()},
                )
                for state in budgets.prices.seen_by(caller, visible)
            ],
        ).SerializeToString()
