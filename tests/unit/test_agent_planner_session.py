"""What must not get lost between an agent and its planner, whenever the stream breaks."""

from builders import make_rank

from perseus_dist.agent.core.actions import Action, Send
from perseus_dist.agent.core.planner_session import PlannerSession
from perseus_dist.messages.from_agent import Attach, ProfileSamples
from perseus_dist.messages.from_planner import Attached
from perseus_dist.messages.terms import Gpu

RANK = make_rank(schedule_digest="0" * 64)
GPU = Gpu(uuid="GPU-0", name="A100", driver_version="550", clocks_mhz=(1410, 1395), control="clockd")
SAMPLES = ProfileSamples(sequence=0, sweep_id=1, step=0, samples=(), last=True)


def attached(acked_samples: int) -> Attached:
    return Attached(phase="profiling", table_revision=0, acked_samples=acked_samples)


def sequences(actions: list[Action]) -> list[int]:
    sent = [action.message for action in actions if isinstance(action, Send)]
    return [message.sequence for message in sent if isinstance(message, ProfileSamples)]


def test_samples_go_out_in_order_also_while_the_planner_has_not_answered_yet() -> None:
    session = PlannerSession(Attach(rank=RANK, gpu=GPU, incarnation=1), None)
    assert sequences(session.put(SAMPLES)) == []
    session.connect(iteration=0, table_revision=0)
    assert sequences(session.put(SAMPLES)) == []  # whoever takes the second would believe to have the first
    assert sequences(session.attached(attached(0), ())) == [1, 2]
    assert sequences(session.put(SAMPLES)) == [3]
    session.acknowledge(1)
    session.disconnect()
    assert sequences(session.put(SAMPLES)) == []
    session.connect(iteration=5, table_revision=0)
    assert sequences(session.put(SAMPLES)) == []
    assert sequences(session.attached(attached(2), ())) == [3, 4, 5]
