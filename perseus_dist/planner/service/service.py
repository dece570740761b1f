"""The gRPC service ``perseus.v1.Planner``, in plain bytes so that the contract's statuses are ours to choose."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.service.attach_service import AttachService
from perseus_dist.planner.service.operator_service import OperatorService
from perseus_dist.planner.service.rpc_guard import Context, RpcGuard
from perseus_dist.rpc.connection import SERVICE

_Reply = TypeVar("_Reply")


def service_handler(jobs: Jobs, guard: RpcGuard) -> grpc.GenericRpcHandler:
    """All methods of the service."""
    agents, operators = AttachService(jobs, guard), OperatorService(jobs, guard)

    def guarded(method: Callable[[bytes, Context], Awaitable[_Reply]]) -> Callable[[bytes, Context], Awaitable[_Reply]]:
        async def handle(data: bytes, context: Context) -> _Reply:
            return await guard.guard(context, method(data, context))

        return handle

    async def attach(_: object, context: Context) -> None:
        await guard.guard(context, agents.attach(context))

    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Attach": grpc.stream_stream_rpc_method_handler(attach),
            "ListJobs": grpc.unary_unary_rpc_method_handler(guarded(operators.list_jobs)),
            "WatchJob": grpc.unary_stream_rpc_method_handler(guarded(operators.watch_job)),
            "GetFrontier": grpc.unary_unary_rpc_method_handler(guarded(operators.get_frontier)),
            "GetProfile": grpc.unary_unary_rpc_method_handler(guarded(operators.get_profile)),
            "SetTarget": grpc.unary_unary_rpc_method_handler(guarded(operators.set_target)),
            "ReportStraggler": grpc.unary_unary_rpc_method_handler(guarded(operators.report_straggler)),
            "ClearStraggler": grpc.unary_unary_rpc_method_handler(guarded(operators.clear_straggler)),
        },
    )
