"""The gRPC service ``perseus.v1.Planner``, in plain bytes so that the contract's statuses are ours to choose."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from perseus_dist.planner.attach_service import AttachService
from perseus_dist.planner.gate import Context, Gate
from perseus_dist.planner.jobs import Jobs
from perseus_dist.planner.operator_service import OperatorService
from perseus_dist.rpc.connection import SERVICE

_Reply = TypeVar("_Reply")


def service_handler(jobs: Jobs, gate: Gate) -> grpc.GenericRpcHandler:
    """All methods of the service."""
    agents, operators = AttachService(jobs, gate), OperatorService(jobs, gate)

    def guarded(method: Callable[[bytes, Context], Awaitable[_Reply]]) -> Callable[[bytes, Context], Awaitable[_Reply]]:
        async def handle(data: bytes, context: Context) -> _Reply:
            return await gate.guard(context, method(data, context))

        return handle

    async def attach(_: object, context: Context) -> None:
        await gate.guard(context, agents.attach(context))

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
