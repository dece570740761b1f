"""The agent's side of the stream to the planner, whichever one is open: who it is, and what must not get lost."""

from dataclasses import replace

from perseus_dist.agent.core.actions import Action, LogDebug, LogWarning, Send
from perseus_dist.agent.core.outbox import SampleOutbox
from perseus_dist.agent.core.settings import SavedProfile
from perseus_dist.messages.from_agent import AgentMessage, Attach, Drift, ProfileSamples
from perseus_dist.messages.from_planner import Attached, Refused


class PlannerSession:
    """Sends messages while a stream is open, and samples again until they are durable.

    Args:
        attach: Who we are; where we stand is filled in.
        saved_profile: Samples that are there from the begin.

    Attributes:
        is_connected: A stream is open.
        is_attached: The planner has accepted it.
    """

    def __init__(self, attach: Attach, saved_profile: SavedProfile | None) -> None:
        self._attach = attach
        self._outbox = SampleOutbox()
        if saved_profile is not None:
            self._outbox.put_saved_profile(saved_profile.samples, saved_profile.blocking_power_w)
        self._refusal = ""  # the last that was logged; empty once attached
        self.is_connected = self.is_attached = False

    def connect(self, *, iteration: int, table_revision: int) -> list[Action]:
        """A stream is open: who we are comes first.

        Args:
            iteration: Begun last.
            table_revision: Of the newest table held.
        """
        self.is_connected = True
        return self.say(replace(self._attach, iteration=iteration, table_revision=table_revision))

    def disconnect(self) -> None:
        """The stream is gone."""
        self.is_connected = self.is_attached = False

    def attached(self, attached: Attached, unresolved: tuple[Drift, ...]) -> list[Action]:
        """The planner knows us: send again all that it may not have received."""
        self.is_attached, self._refusal = True, ""
        self._outbox.acknowledge(attached.acked_samples)
        messages: tuple[AgentMessage, ...] = (*self._outbox.waiting, *unresolved)
        actions = [action for message in messages for action in self.say(message)]
        return [LogDebug(f"attached to the planner, job is {attached.phase}"), *actions]

    def refused(self, refused: Refused) -> list[Action]:
        """The planner does not take us; the same sentence is logged once."""
        is_told, self._refusal = refused.reason == self._refusal, refused.reason
        return [] if is_told else [LogWarning(f"refused by the planner: {refused.reason}")]

    def say(self, message: AgentMessage) -> list[Action]:
        """Send a message, if a stream is open."""
        return [Send(message)] if self.is_connected else []

    def put(self, samples: ProfileSamples) -> list[Action]:
        """Number samples, and send them until they are acknowledged; in order, so what a break left comes first."""
        numbered = self._outbox.put(samples)
        return self.say(numbered) if self.is_attached else []

    def acknowledge(self, sequence: int) -> None:
        """All samples up to this one are durable."""
        self._outbox.acknowledge(sequence)
