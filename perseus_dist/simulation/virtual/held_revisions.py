"""The revisions of tables and switches that one agent says it holds: they never go back while the agent lives."""

from perseus_dist.messages.from_agent import AgentMessage, Attach, SwitchSeen


class HeldRevisions:
    """Of one agent.

    Args:
        rank: The agent's.
        went_back: Takes a sentence for each time that a revision is lower than one before.
    """

    def __init__(self, rank: int, went_back: list[str]) -> None:
        self._rank = rank
        self._highest = {"table": 0, "switch": 0}
        self._went_back = went_back

    def hear(self, message: AgentMessage) -> None:
        """The agent says something to the planner."""
        if isinstance(message, SwitchSeen):
            self._record("switch", message.switch_revision)
        elif isinstance(message, Attach):
            self._record("table", message.table_revision)

    def _record(self, kind: str, revision: int) -> None:
        highest = self._highest[kind]
        if revision < highest:
            self._went_back.append(f"rank {self._rank} held {kind} {highest} and then holds {kind} {revision}")
        self._highest[kind] = max(highest, revision)
