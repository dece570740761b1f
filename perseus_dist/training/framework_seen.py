"""Whether an adapter of this process has seen its framework train, and has its own word on the job.

torch's optimizers, which another adapter watches for jobs without a pipeline, step in DeepSpeed's and Megatron's jobs
too.
"""

_is_seen = False


def note_framework() -> None:
    """A framework with an adapter of its own trains, and was asked to under Perseus."""
    global _is_seen  # noqa: PLW0603 - of this process
    _is_seen = True


def is_framework_seen() -> bool:
    """Whether a framework with an adapter of its own trains in this process, under Perseus."""
    return _is_seen
