"""A planner that gives every agent one plan at once: all instructions at one clock.

    python plan_server.py PORT CLOCK_MHZ SCHEDULE

It prints the port when it listens; 0 chooses one.
"""

import sys
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc

from perseus_dist.agent.following.rank_program import schedule_digest
from perseus_dist.messages.from_planner import Attached, PlannerMessage, PlanTable, Switch
from perseus_dist.rpc.codec import encode_planner_message
from perseus_dist.rpc.connection import SERVICE


def plan(schedule: str, clock_mhz: int) -> tuple[PlannerMessage, ...]:
    """The messages to every agent of a job with one rank."""
    num_instructions = len(schedule.split())
    table = PlanTable(
        revision=1,
        num_points=1,
        num_instructions=num_instructions,
        clocks_mhz=array("H", [clock_mhz] * num_instructions).tobytes(),
        times_s=(1.0,),
        energies_j=(1.0,),
        expected=(),
        switch_latency_s=0.012,
        schedule_digest=schedule_digest(schedule),
    )
    attached = Attached(phase="enforcing", table_revision=1, acked_samples=0)
    return attached, table, Switch(table_revision=1, point=0, effective_iteration=0, switch_revision=1)


def main(port: int, clock_mhz: int, schedule: str) -> None:
    """Serve until killed."""

    def attach(requests: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        yield from map(encode_planner_message, plan(schedule, clock_mhz))
        with suppress(Exception):  # grpc raises a bare Exception when the stream breaks
            for _request in requests:
                pass

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(attach)
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Attach": handler})])
    sys.stdout.write(f"{server.add_insecure_port(f'127.0.0.1:{port}')}\n")
    sys.stdout.flush()
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
