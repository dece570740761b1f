"""``messages`` to bytes and back. What is decoded is valid in every field; what is not, is refused field by field."""

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from perseus_dist.messages.from_agent import AgentMessage
from perseus_dist.messages.from_planner import PlannerMessage
from perseus_dist.rpc.agent_wire import agent_message_from_wire, agent_message_to_wire
from perseus_dist.rpc.planner_wire import planner_message_from_wire, planner_message_to_wire
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker, FieldViolation, InvalidMessageError

_Wire = TypeVar("_Wire", bound=Message)


def encode_agent_message(message: AgentMessage) -> bytes:
    """Bytes that the planner accepts: checked here by its rules. Sentences and names are cut to what it accepts.

    Raises:
        InvalidMessageError: A field is out of its range. Sending the message, now or later, cannot help.
    """
    try:
        wire = agent_message_to_wire(message)
    except ValueError as error:  # protobuf's own: an integer out of its 32 or 64 bits
        raise InvalidMessageError([FieldViolation("", f"{error}: expected a number that the field can hold")]) from None
    check = Checker()
    agent_message_from_wire(check, wire)
    check.finish()
    return wire.SerializeToString()


def decode_agent_message(data: bytes) -> AgentMessage:
    """The inverse of ``encode_agent_message``.

    Raises:
        InvalidMessageError: The bytes are no message, or fields are out of their ranges.
    """
    check = Checker()
    message = agent_message_from_wire(check, parse(pb.AgentMessage, data))
    check.finish()
    return message


def encode_planner_message(message: PlannerMessage) -> bytes:
    """Bytes for an agent. A table takes about 10 ms a megabyte of clocks: encode it once, away from an event loop."""
    return planner_message_to_wire(message).SerializeToString()


def decode_planner_message(data: bytes) -> PlannerMessage:
    """The inverse of ``encode_planner_message``.

    Raises:
        InvalidMessageError: The bytes are no message, or fields are out of their ranges.
    """
    check = Checker()
    message = planner_message_from_wire(check, parse(pb.PlannerMessage, data))
    check.finish()
    return message


def parse(wire_type: type[_Wire], data: bytes) -> _Wire:
    """Protobuf's own parsing.

    Raises:
        InvalidMessageError: The bytes are no such message.
    """
    try:
        return wire_type.FromString(data)
    except DecodeError:
        name = wire_type.DESCRIPTOR.full_name
        raise InvalidMessageError([FieldViolation("", f"{len(data)} bytes were seen, expected a {name}")]) from None
