"""Telemetry of a node as it reaches the planner: bytes and messages a rank and second, and what reading it costs.

    python benchmarks/node_messages.py [--ranks 8] [--record]

Messages are those of the simulated ranks of ``node_streams.py``, batched by the relay's own code. Reading is taken
apart: the frames of the node's message, protobuf of each rank's, and its checks and values. What frames and protobuf
take is all that one message for the node's ranks together could save, whose values would have to be the same.
"""

import argparse
import shlex
import sys
import time
import timeit
from collections.abc import Callable

from load_agent import LoadAgent, LoadJob
from measuring import conditions, print_table, record_result

from perseus_dist.messages.from_agent import Telemetry
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.relay.uplink_batch import UplinkBatch
from perseus_dist.rpc.codec import decode_agent_message, encode_agent_message
from perseus_dist.rpc.node_wire import Opened, decode_node_message, encode_node_message
from perseus_dist.rpc.v1 import planner_pb2 as pb

COLUMNS = (
    "iterations of",
    "messages a rank and second",
    "behind a relay",
    "bytes a rank and second",
    "bytes behind a relay",
    "frames [us]",
    "protobuf [us]",
    "checks and values [us]",
)
_NUMBER, _REPEAT = 2000, 15


def microseconds(work: Callable[[], object]) -> float:
    """Processor time of one call, the least of many attempts."""
    timer = timeit.Timer(work, timer=time.process_time)
    return min(timer.repeat(_REPEAT, _NUMBER)) / _NUMBER * 1e6


def row(num_ranks: int, iteration_s: float) -> list[str]:
    """One second of a node."""
    job = LoadJob(job_id="load", schedule=one_f_one_b(pp=num_ranks, microbatches=12), dp_size=1)
    batch, messages, seconds = UplinkBatch(), [], max(1, round(iteration_s))
    for channel, rank in enumerate(job.ranks(), start=1):
        agent = LoadAgent(job=job, rank=rank, address="")
        batch.add(channel, Opened(""), 0.0)
        reports = tuple(agent._iteration_report(number) for number in range(1, 1 + round(seconds / iteration_s)))  # noqa: SLF001
        of_seconds = [
            Telemetry(
                sequence=1, iteration=9, iterations=reports if not second else (), gpu=agent.gpu, control="clockd"
            )
            for second in range(seconds)
        ]
        messages.append([encode_agent_message(message) for message in of_seconds])
    list(batch.take())
    sent = []
    for second in range(seconds):
        for channel, of_rank in enumerate(messages, start=1):
            batch.add(channel, of_rank[second], 10.0 + second)
        sent += [encode_node_message(part) for part in batch.take()]
    rank_seconds = num_ranks * seconds
    alone = [data for of_rank in messages for data in of_rank]
    frames_us = sum(microseconds(lambda data=data: list(decode_node_message(data))) for data in sent)  # type: ignore[misc]
    parse_us = whole_us = 0.0
    for data in messages[0]:
        parse_us += microseconds(lambda data=data: pb.AgentMessage.FromString(data))  # type: ignore[misc]
        whole_us += microseconds(lambda data=data: decode_agent_message(data))  # type: ignore[misc]
    return [
        f"{iteration_s:g} s",
        "1",
        f"{len(sent) / rank_seconds:g}",
        f"{sum(map(len, alone)) / rank_seconds:.0f}",
        f"{sum(map(len, sent)) / rank_seconds:.0f}",
        f"{frames_us / rank_seconds:.1f}",
        f"{parse_us / seconds:.1f}",
        f"{(whole_us - parse_us) / seconds:.1f}",
    ]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8, help="of a node")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    rows = [row(args.ranks, iteration_s) for iteration_s in (1.0, 5.0, 10.0)]
    print(conditions())
    print_table(COLUMNS, rows)
    if args.record:
        record_result("node_messages", command=shlex.join(["python", *sys.argv]), columns=COLUMNS, rows=rows)


if __name__ == "__main__":
    main()
