"""The gRPC service ``perseus.v1.Planner``, in plain bytes so that the contract's statuses are ours to choose."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.service.access_service import AccessService
from perseus_dist.planner.service.attach_service import AttachService
from perseus_dist.planner.service.budget_service import BudgetService
from perseus_dist.planner.service.node_service import NodeService
from perseus_dist.planner.service.operator_service import OperatorService
from perseus_dist.planner.service.policy_changes import PolicyChanges
from perseus_dist.planner.service.price_service import PriceService
from perseus_dist.planner.service.rpc_guard import Context, RpcGuard
from perseus_dist.rpc.connection import SERVICE

_Reply = TypeVar("_Reply")


def service_handler(jobs: Jobs, guard: RpcGuard) -> grpc.GenericRpcHandler:
    """All methods of the service."""
    agents, nodes, operators = AttachService(jobs, guard), NodeService(jobs, guard), OperatorService(jobs, guard)
    administrators = AccessService(guard.access, guard, jobs.counters)
    changes = PolicyChanges(jobs, guard)
    budgets, prices = BudgetService(jobs, changes), PriceService(jobs, changes)
    answered_once = {
        "ListJobs": operators.list_jobs,
        "GetFrontier": operators.get_frontier,
        "GetProfile": operators.get_profile,
        "SetTarget": operators.set_target,
        "ReportStraggler": operators.report_straggler,
        "ClearStraggler": operators.clear_straggler,
        "GetPolicy": budgets.get_policy,
        "SetBudget": budgets.set_budget,
        "ClearBudget": budgets.clear_budget,
        "SetLoadTarget": budgets.set_load_target,
        "ClearLoadTarget": budgets.clear_load_target,
        "SetPricePolicy": prices.set_policy,
        "ClearPricePolicy": prices.clear_policy,
        "CreateToken": administrators.create_token,
        "ListTokens": administrators.list_tokens,
        "RevokeToken": administrators.revoke_token,
        "ReadAudit": administrators.read_audit,
    }

    def guarded(
        name: str, method: Callable[[bytes, Context], Awaitable[_Reply]]
    ) -> Callable[[bytes, Context], Awaitable[_Reply]]:
        async def handle(data: bytes, context: Context) -> _Reply:
            return await guard.guard(name, context, method(data, context))

        return handle

    async def attach(_: object, context: Context) -> None:
        await guard.guard("Attach", context, agents.attach(context))

    async def node_stream(_: object, context: Context) -> None:
        await guard.guard("NodeStream", context, nodes.serve(context))

    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        name: grpc.unary_unary_rpc_method_handler(guarded(name, method)) for name, method in answered_once.items()
    }
    methods["WatchJob"] = grpc.unary_stream_rpc_method_handler(guarded("WatchJob", operators.watch_job))
    methods["Attach"] = grpc.stream_stream_rpc_method_handler(attach)
    methods["NodeStream"] = grpc.stream_stream_rpc_method_handler(node_stream)
    return grpc.method_handlers_generic_handler(SERVICE, methods)
