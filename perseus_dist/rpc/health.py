"""The standard gRPC health protocol, as a client; two messages of one field, by hand: a probe must start fast."""

from typing import TYPE_CHECKING

from perseus_dist.rpc.connection import SERVICE

if TYPE_CHECKING:
    import grpc

_CHECK = "/grpc.health.v1.Health/Check"
_REQUEST = b"\x0a" + bytes([len(SERVICE)]) + SERVICE.encode()  # HealthCheckRequest.service
_SERVING = b"\x08\x01"  # HealthCheckResponse.status


def find_service_fault(channel: "grpc.Channel", timeout_s: float) -> str:
    """Ask whether the planner's service is served.

    Args:
        channel: To the planner.
        timeout_s: For connection, handshake and answer together.

    Returns:
        Why it is not, in a sentence; empty if it is.
    """
    import grpc

    check: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_CHECK)
    try:
        answer = check(_REQUEST, timeout=timeout_s, wait_for_ready=False)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return "another service answers there"
        return f"{error.code().name}: {error.details()}"
    return "" if answer == _SERVING else "it is starting or draining"
