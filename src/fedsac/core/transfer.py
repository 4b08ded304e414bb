"""From the CPU to where the models lie."""

import torch
from torch import Tensor


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device. A GPU fetches it from pinned memory when its turn comes; a plain copy would make this
    process wait until the GPU has done all it was told to do before."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
