"""Frames of a node stream: messages of a node's ranks in one, and the planner's answers to several ranks at once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from perseus_dist.messages.finding import Finding
from perseus_dist.rpc.codec import parse
from perseus_dist.rpc.fields import findings_from_wire, findings_to_wire, sentence
from perseus_dist.rpc.limits import (
    MAX_CHANNELS,
    MAX_NAME_LENGTH,
    MAX_NODE_FRAMES,
    MAX_SENTENCE_LENGTH,
    MAX_TOKEN_LENGTH,
)
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

_MAX_CODE = 16


@dataclass(frozen=True, slots=True)
class Opened:
    """An agent has begun a stream.

    Attributes:
        token: Its own; empty without one.
    """

    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Closed:
    """An agent has ended its stream, or is gone."""


@dataclass(frozen=True, slots=True)
class NodeHello:
    """The node that the relay is on, on no channel.

    Attributes:
        host: Its name.
        findings: Troubles of its clock control.
    """

    host: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The planner has ended a channel.

    Attributes:
        code: Number of the gRPC status; 0 for an orderly end.
        reason: A sentence; empty with code 0.
        owner: Address of the replica to attach to instead; empty for none.
    """

    code: int
    reason: str = ""
    owner: str = ""


NO_CHANNEL = 0

NodeFrame = tuple[int, Opened | bytes | Closed | NodeHello]
"""A channel's number, and what has come on it: ``bytes`` are an ``AgentMessage``. A hello is on ``NO_CHANNEL``."""

NodeReplyFrame = tuple[Sequence[int], bytes | Ended]
"""Numbers of channels, and what goes to each: ``bytes`` are a ``PlannerMessage``."""


def encode_node_message(frames: Iterable[NodeFrame]) -> bytes:
    """Bytes for the planner."""
    wire = pb.NodeMessage()
    for channel, frame in frames:
        if isinstance(frame, NodeHello):
            host = sentence(frame.host, MAX_NAME_LENGTH)
            wire.node.CopyFrom(pb.NodeHello(host=host, findings=findings_to_wire(frame.findings)))
        else:
            wire.frames.append(_frame_to_wire(channel, frame))
    return wire.SerializeToString()


def decode_node_message(data: bytes) -> list[NodeFrame]:
    """The inverse of ``encode_node_message``, a hello first. Messages of agents may be anything.

    Raises:
        InvalidMessageError: The bytes are no message, or fields are out of their ranges.
    """
    check = Checker()
    wire = parse(pb.NodeMessage, data)
    if len(wire.frames) > MAX_NODE_FRAMES:
        check.violated("frames", f"{len(wire.frames)} frames", f"at most {MAX_NODE_FRAMES}")
        check.finish()
    frames: list[NodeFrame] = []
    if wire.HasField("node"):
        host = check.text("node.host", wire.node.host, MAX_NAME_LENGTH)
        if not host:
            check.violated("node.host", host, "the node's name")
        frames.append((NO_CHANNEL, NodeHello(host, findings_from_wire(check, "node.findings", wire.node.findings))))
    frames += [_frame_from_wire(check, index, one) for index, one in enumerate(wire.frames)]
    check.finish()
    return frames


def encode_node_reply(frames: Iterable[NodeReplyFrame]) -> bytes:
    """Bytes for a node relay."""
    wire = pb.NodeReply()
    for channels, frame in frames:
        if isinstance(frame, Ended):
            ended = pb.ChannelEnded(code=frame.code, reason=sentence(frame.reason), owner=frame.owner)
            wire.frames.add(channels=channels, ended=ended)
        else:
            wire.frames.add(channels=channels, message=frame)
    return wire.SerializeToString()


def decode_node_reply(data: bytes) -> list[NodeReplyFrame]:
    """The inverse of ``encode_node_reply``.

    Raises:
        InvalidMessageError: The bytes are no message, or fields are out of their ranges.
    """
    check = Checker()
    frames: list[NodeReplyFrame] = []
    for index, one in enumerate(parse(pb.NodeReply, data).frames):
        at = f"frames[{index}]."
        if not 1 <= len(one.channels) <= MAX_CHANNELS:
            check.violated(at + "channels", f"{len(one.channels)} channels", f"from 1 to {MAX_CHANNELS}")
        match one.WhichOneof("frame"):
            case "message":
                frames.append((tuple(one.channels), one.message))
            case "ended":
                code = check.integer(at + "ended.code", one.ended.code, 0, _MAX_CODE)
                reason = check.text(at + "ended.reason", one.ended.reason, MAX_SENTENCE_LENGTH)
                owner = check.text(at + "ended.owner", one.ended.owner, MAX_SENTENCE_LENGTH)
                frames.append((tuple(one.channels), Ended(code, reason, owner)))
            case seen:
                check.violated(at + "frame", seen, "one of message and ended")
    check.finish()
    return frames


def _frame_to_wire(channel: int, frame: Opened | bytes | Closed) -> pb.NodeFrame:
    match frame:
        case Opened(token):
            return pb.NodeFrame(channel=channel, open=token)
        case Closed():
            return pb.NodeFrame(channel=channel, close=True)
        case _:
            return pb.NodeFrame(channel=channel, message=frame)


def _frame_from_wire(check: Checker, index: int, wire: pb.NodeFrame) -> NodeFrame:
    if not wire.channel:
        check.violated(f"frames[{index}].channel", 0, "a number from 1 up")
    match wire.WhichOneof("frame"):
        case "message":
            return wire.channel, wire.message
        case "open":
            return wire.channel, Opened(check.text(f"frames[{index}].open", wire.open, MAX_TOKEN_LENGTH))
        case "close" if wire.close:
            return wire.channel, Closed()
        case seen:
            check.violated(f"frames[{index}].frame", seen, "one of open, message and close (true)")
            return wire.channel, Closed()
