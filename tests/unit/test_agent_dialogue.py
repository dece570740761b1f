"""What must not get lost between an agent and its planner, whenever the stream breaks."""

from perseus_dist.agent.actions import Action, Send
from perseus_dist.agent.dialogue import Dialogue
from perseus_dist.messages import Attach, Attached, Gpu, ProfileSamples, Rank

RANK = Rank(
    job_id="job", rank=0, pp_rank=0, dp_rank=0, tp_rank=0, pp_size=1, dp_size=1, tp_size=1, schedule_digest="0" * 64
)
GPU = Gpu(uuid="GPU-0", name="A100", driver_version="550", clocks_mhz=(1410, 1395), control="clockd")
SAMPLES = ProfileSamples(sequence=0, sweep_id=1, step=0, samples=(), last=True)


def attached(acked_samples: int) -> Attached:
    return Attached(phase="profiling", table_revision=0, acked_samples=acked_samples)


def sequences(actions: list[Action]) -> list[int]:
    sent = [action.message for action in actions if isinstance(action, Send)]
    return [message.sequence for message in sent if isinstance(message, ProfileSamples)]


def test_samples_go_out_in_order_also_while_the_planner_has_not_answered_yet() -> None:
    dialogue = Dialogue(Attach(rank=RANK, gpu=GPU, incarnation=1), None)
    assert sequences(dialogue.put(SAMPLES)) == []
    dialogue.connect(iteration=0, table_revision=0)
    assert sequences(dialogue.put(SAMPLES)) == []  # whoever takes the second would believe to have the first
    assert sequences(dialogue.attached(attached(0), ())) == [1, 2]
    assert sequences(dialogue.put(SAMPLES)) == [3]
    dialogue.acknowledge(1)
    dialogue.disconnect()
    assert sequences(dialogue.put(SAMPLES)) == []
    dialogue.connect(iteration=5, table_revision=0)
    assert sequences(dialogue.put(SAMPLES)) == []
    assert sequences(dialogue.attached(attached(2), ())) == [3, 4, 5]
