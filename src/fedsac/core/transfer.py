"""Copies from the CPU to a GPU that do not block."""

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on this device; from CPU to GPU as a non-blocking copy from pinned memory.

    A plain copy would make this process wait until the GPU has finished all work queued before it.
    """
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
