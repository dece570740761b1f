"""Figures that Perseus has written to TensorBoard, read back."""

from pathlib import Path

import pytest


def read_events(folder: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, list[tuple[int, str]]]]:
    """Our scalars and texts, as steps and values by the tag's last part."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()
    scalars = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags["scalars"]}
    texts = {
        tag: [(event.step, event.tensor_proto.string_val[0].decode()) for event in events.Tensors(tag)]
        for tag in tags["tensors"]
        if tag.endswith("/text_summary")
    }
    prefix = "perseus/"
    return (
        {tag.removeprefix(prefix): points for tag, points in scalars.items() if tag.startswith(prefix)},
        {tag.split("/")[1]: points for tag, points in texts.items() if tag.startswith(prefix)},
    )
