"""The connection of tables of rights and audit records, whose failures are the planner's to report."""

from collections.abc import Callable
from typing import TypeVar

from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.connection import Connection, FailedError, Opened, UnreachableError
from perseus_dist.planner.store.shared_rights import SharedRightsError

_TIMEOUT_S = 5.0

_Result = TypeVar("_Result")


class RightsConnection:
    """A ``Connection`` that raises ``SharedRightsError`` alone, after 5 s at most.

    Args:
        address: Of the database, whose schema is the present one.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._connection = Connection(address)

    def run(self, work: Callable[[Opened], _Result]) -> _Result:
        """The result of some work on the connection.

        Raises:
            SharedRightsError: The database cannot be reached, or refuses.
        """
        try:
            return self._connection.run(work, timeout_s=_TIMEOUT_S)
        except (UnreachableError, FailedError) as error:
            raise SharedRightsError(str(error)) from error

    def close(self) -> None:
        """Disconnect from the database."""
        self._connection.close()
