"""A planner's service over real gRPC on loopback, on an event loop of its own in the test's process."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.service.rpc_guard import RpcGuard
from perseus_dist.planner.service.server import make_server
from perseus_dist.planner.store.store import Store
from perseus_dist.planner.worker.planning_worker import PlanningWorker
from perseus_dist.rpc.connection import SERVICE

OPERATOR_TOKEN = "operator"


@contextmanager
def served_planner() -> Iterator[str]:
    """Its address; it wants tokens, takes ``OPERATOR_TOKEN``, and says to health checks that it serves."""
    address: Future[str] = Future()
    loop, ended = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        store, worker, counters = Store(None), PlanningWorker(), Counters()
        jobs, access = Jobs(store, worker, Policy(), counters), Access(OPERATOR_TOKEN)
        server = make_server(jobs, RpcGuard(access=access, needs_token=True, counters=counters))
        healthy = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await healthy.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        address.set_result(f"127.0.0.1:{port}")
        await ended.wait()
        await server.stop(None)
        jobs.close()
        await worker.close()
        access.close()
        store.close()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:
            if address.done():
                raise
            address.set_exception(error)
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="planner")
    thread.start()
    try:
        yield address.result()
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(ended.set)
        thread.join()
