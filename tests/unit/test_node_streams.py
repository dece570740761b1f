"""Frames of node streams: how they are put together, taken apart and kept in order; which way an agent takes."""

from random import Random

import pytest

from perseus_dist.agent.link.relay_route import GRACE_S, RelayRoute
from perseus_dist.messages.finding import Finding, Level
from perseus_dist.planner.service.node_outbox import ReplyBatch, split
from perseus_dist.relay.uplink_batch import BEAT_S, MAX_MESSAGE_BYTES, PERIOD_S, UplinkBatch
from perseus_dist.rpc.limits import MAX_NODE_FRAMES
from perseus_dist.rpc.node_wire import (
    NO_CHANNEL,
    Closed,
    Ended,
    NodeFrame,
    NodeHello,
    NodeReplyFrame,
    Opened,
    decode_node_message,
    decode_node_reply,
    encode_node_message,
    encode_node_reply,
)
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import InvalidMessageError

TELEMETRY = pb.AgentMessage(telemetry=pb.Telemetry(sequence=1)).SerializeToString()
DRIFT = pb.AgentMessage(drift=pb.Drift(sequence=1)).SerializeToString()


def test_frames_survive_the_wire() -> None:
    frames: list[NodeFrame] = [(1, Opened("a-token")), (2, Opened()), (1, b"\xff"), (2, b""), (1, Closed())]
    assert decode_node_message(encode_node_message(frames)) == frames
    replies: list[NodeReplyFrame] = [((1, 2), b"table"), ((2,), Ended(14, "gone")), ((1,), Ended(0))]
    assert decode_node_reply(encode_node_reply(replies)) == replies


def test_a_hello_survives_the_wire_and_a_planner_of_before_reads_the_frames() -> None:
    finding = Finding(level=Level.WARN, subject="clockd", what="does not answer", remedy="restart clockd")
    hello = NodeHello("node7", (finding,))
    data = encode_node_message([(1, Opened("a-token")), (NO_CHANNEL, hello)])
    assert decode_node_message(data) == [(NO_CHANNEL, hello), (1, Opened("a-token"))]
    assert len(pb.NodeMessage.FromString(data).frames) == 1


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Opened("secret"))


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"\xff\xff", ""),
        (pb.NodeMessage(frames=[pb.NodeFrame(message=b"")]).SerializeToString(), "frames[0].channel"),
        (pb.NodeMessage(frames=[pb.NodeFrame(channel=1)]).SerializeToString(), "frames[0].frame"),
        (pb.NodeMessage(frames=[pb.NodeFrame(channel=1, close=False)]).SerializeToString(), "frames[0].frame"),
        (pb.NodeMessage(frames=[pb.NodeFrame(channel=1, open="a\nb")]).SerializeToString(), "frames[0].open"),
        (pb.NodeMessage(node=pb.NodeHello()).SerializeToString(), "node.host"),
        (pb.NodeMessage(node=pb.NodeHello(host="a\nb")).SerializeToString(), "node.host"),
        (
            pb.NodeMessage(node=pb.NodeHello(host="a", findings=[pb.Finding()] * 33)).SerializeToString(),
            "node.findings",
        ),
        (pb.NodeMessage(frames=[pb.NodeFrame(channel=1)] * (MAX_NODE_FRAMES + 1)).SerializeToString(), "frames"),
    ],
)
def test_malformed_frames_are_refused_field_by_field(data: bytes, field: str) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        decode_node_message(data)
    assert refused.value.violations[0].field == field


@pytest.mark.parametrize("seed", range(50))
def test_each_channel_gets_what_was_put_into_it_in_order(seed: int) -> None:
    """However messages to several channels are joined, and whenever what waits is taken."""
    rng = Random(seed)
    batch = ReplyBatch()
    put: dict[int, list[bytes]] = {channel: [] for channel in range(1, 5)}
    got: dict[int, list[bytes | Ended]] = {channel: [] for channel in put}
    for _ in range(200):
        channel, message = rng.randint(1, 4), b"%d" % rng.randint(0, 3)
        batch.add(channel, message)
        put[channel].append(message)
        if rng.random() < 0.1:
            for channels, frame in batch.take():
                for one in channels:
                    got[one].append(frame)
    for channels, frame in batch.take():
        for one in channels:
            got[one].append(frame)
    assert got == put
    assert not batch


def test_what_goes_to_all_ranks_travels_once() -> None:
    batch = ReplyBatch()
    for channel in range(1, 9):
        batch.add(channel, b"switch")
    assert batch.take() == [(tuple(range(1, 9)), b"switch")]


def test_what_waits_for_a_channel_that_is_gone_is_dropped() -> None:
    batch = ReplyBatch()
    for channel in (1, 2):
        batch.add(channel, b"switch")
    batch.add(1, b"more")
    assert batch.num_waiting(1) == 2
    batch.drop(1)
    assert batch.take() == [((2,), b"switch")]


def test_long_messages_are_split_between_frames_alone() -> None:
    frames = [((1,), b"x" * 50_000), ((2,), b"y" * 50_000), ((1,), b"z")]
    assert [len(part) for part in split(frames, 70_000)] == [1, 2]
    assert [frame for part in split(frames, 1) for frame in part] == frames


def test_telemetry_waits_for_that_of_all_agents_and_nothing_else_waits() -> None:
    batch = UplinkBatch()
    for channel in (1, 2):
        batch.add(channel, Opened(), 0.0)
    assert batch.due_s == 0.0
    assert [len(part) for part in batch.take()] == [2]
    batch.add(1, TELEMETRY, 10.0)
    assert batch.due_s == pytest.approx(10.0 + PERIOD_S - BEAT_S)
    batch.add(2, TELEMETRY, 10.4)
    assert batch.due_s == pytest.approx(10.4)
    assert [frame for part in batch.take() for frame in part] == [(1, TELEMETRY), (2, TELEMETRY)]
    batch.add(1, TELEMETRY, 11.0)
    batch.add(1, DRIFT, 11.1)
    assert batch.due_s == 11.1
    assert [frame for part in batch.take() for frame in part] == [(1, TELEMETRY), (1, DRIFT)]
    batch.add(2, Closed(), 12.0)
    batch.add(1, TELEMETRY, 12.0)
    assert batch.due_s == 12.0
    assert batch.num_bytes == len(TELEMETRY)


@pytest.mark.parametrize(("now_s", "wall_s"), [(5.03, 0.0), (5.03, 1.7e9 + 0.04), (0.0, -0.01), (86_400.001, 3.3)])
def test_telemetry_of_all_nodes_goes_at_the_same_beats_of_the_wall_clock(now_s: float, wall_s: float) -> None:
    batch = UplinkBatch(wall_s)
    batch.add(1, Opened(), now_s - 1.0)
    list(batch.take())
    batch.add(1, TELEMETRY, now_s)
    due_s = batch.due_s
    assert due_s is not None
    assert now_s - 1e-6 <= due_s < now_s + BEAT_S + 1e-6
    beats = (due_s + wall_s) / BEAT_S
    assert beats == pytest.approx(round(beats), abs=1e-4)


def test_a_batch_is_cut_where_a_message_would_be_too_long() -> None:
    batch = UplinkBatch()
    batch.add(1, b"x" * (MAX_MESSAGE_BYTES - 100), 0.0)
    batch.add(1, b"y" * 200, 0.0)
    for _ in range(MAX_NODE_FRAMES):
        batch.add(1, b"z", 0.0)
    parts = list(batch.take())
    assert [len(part) for part in parts] == [1, MAX_NODE_FRAMES, 1]
    assert batch.due_s is None


def test_an_agent_leaves_a_relay_that_fails_and_comes_back_later_and_later() -> None:
    route = RelayRoute(spread=1.0)
    assert route.is_relayed(0.0)
    route.note_failure(0.0)
    assert not route.is_relayed(59.0)
    assert route.is_relayed(60.0)
    route.note_failure(60.0)
    assert route.retry_in_s(60.0) == 120.0
    route.note_accepted()
    route.note_failure(200.0)
    assert route.is_relayed(260.0)


def test_a_relay_without_a_planner_is_given_time_and_then_not_blamed_for_a_planner_that_is_gone() -> None:
    route = RelayRoute(spread=1.0)
    route.note_planner_gone(0.0)
    assert route.is_relayed(0.1)
    route.note_planner_gone(GRACE_S)
    assert not route.is_relayed(GRACE_S)
    route.note_no_direct_way()
    assert route.is_relayed(GRACE_S)
    route.note_failure(20.0)
    route.note_no_direct_way()
    assert not route.is_relayed(20.0)
