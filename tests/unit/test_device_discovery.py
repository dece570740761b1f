"""``CUDA_VISIBLE_DEVICES`` as CUDA reads it."""

import pytest

from perseus_dist.device.nvml.discovery import VisibleGpu, choose_gpu

UUIDS = [f"GPU-{digit * 4}-0000" for digit in "abcd"] + ["GPU-aabb-0000"]
GPUS = [VisibleGpu(uuid=uuid, name="NVIDIA A100-SXM4-80GB") for uuid in UUIDS]


@pytest.mark.parametrize(
    ("visible", "local_rank", "index"),
    [
        (None, 0, 0),
        (None, 4, 4),
        ("0,1,2,3", 2, 2),
        ("3,1", 0, 3),
        (" 3 , 1 ", 1, 1),
        ("GPU-cccc-0000,GPU-bbbb", 0, 2),
        ("GPU-cccc-0000,GPU-bbbb", 1, 1),
        ("2,GPU-aaa", 1, 0),
        ("1,9,2", 0, 1),  # CUDA stops at the 9
    ],
)
def test_found(visible: str | None, local_rank: int, index: int) -> None:
    assert choose_gpu(local_rank, GPUS, visible, "FASTEST_FIRST").uuid == UUIDS[index]


@pytest.mark.parametrize(
    ("visible", "local_rank", "trouble"),
    [
        (None, 5, "5 GPUs are there"),
        ("", 0, "sees 0"),
        ("-1", 0, "sees 0: '-1' is none of the 5 GPUs"),
        ("1,9,2", 1, "sees 1: '9' is none"),
        ("1,1", 0, "twice"),
        ("1,GPU-bbbb-0000", 0, "twice"),
        ("GPU-aa", 0, "2 GPUs have a UUID that begins with GPU-aa"),
        ("MIG-GPU-aaaa-0000/1/0", 0, "no clock of its own"),
        ("0", -1, "no GPU for local rank -1"),
    ],
)
def test_not_found(visible: str | None, local_rank: int, trouble: str) -> None:
    found = choose_gpu(local_rank, GPUS, visible, "FASTEST_FIRST")
    assert found.uuid is None
    assert trouble in found.trouble


def test_numbers_of_unlike_gpus_need_an_order() -> None:
    gpus = [*GPUS[:2], VisibleGpu(uuid="GPU-t4", name="Tesla T4")]
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in choose_gpu(0, gpus, "0", "FASTEST_FIRST").trouble
    assert choose_gpu(0, gpus, "0", "PCI_BUS_ID").uuid == UUIDS[0]
    assert choose_gpu(0, gpus, "GPU-t4", "FASTEST_FIRST").uuid == "GPU-t4"


@pytest.mark.parametrize("visible", [None, "0,1,2", "2"])
def test_numbers_from_a_lost_gpu_on_name_none(visible: str | None) -> None:
    """CUDA may number them as if it were there, or as if it were not."""
    gpus = [GPUS[0], None, GPUS[2]]
    found = choose_gpu(0 if visible == "2" else 2, gpus, visible, "FASTEST_FIRST")
    assert found.uuid is None
    assert "GPU 1 is lost" in found.trouble
    assert choose_gpu(0, gpus, "GPU-cccc", "FASTEST_FIRST").uuid == UUIDS[2]
    assert choose_gpu(0, gpus, None, "FASTEST_FIRST").uuid == UUIDS[0]
