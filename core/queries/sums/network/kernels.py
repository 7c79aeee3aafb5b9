"""Kernels whose floats are the same whenever shapes and inputs are: on a CPU all of them, on a GPU some.

A GPU's fastest kernels add up in whatever order threads arrive. Then a record's floats would not be a function of that
record, and sums of parts without the changed record would differ between neighbours, which no grid charges for. On a
GPU, torch is therefore set to refuse such kernels. Pooling and attention, whose backward passes have no others, are
written in deterministic operations.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from itertools import product
from math import inf

import torch
from torch import Tensor
from torch.nn import functional


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Refuse, on a GPU, kernels whose order of summation is not fixed, and products in less than single precision."""
    if device.type == "cpu":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch asks for before it promises repeatability
    # `use_deterministic_algorithms` loads torch's compiler: 1.7 s, and pandas, which trainers leave out.
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_deterministic_debug_mode(before)


def max_pool2d(images: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Return the largest number of each window, shape (m, channels, height', width')."""
    if images.device.type == "cpu":
        return functional.max_pool2d(images, kernel, stride, padding)
    return largest_of_windows(images, kernel, stride, padding)


def largest_of_windows(images: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Return the same by comparing shifted images; equal numbers share the slope."""
    return reduce(torch.maximum, _shifted(images, kernel, stride, padding, -inf))


def mean_pool2d(images: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Return the mean of each window, padding counted as zeros, shape (m, channels, height', width')."""
    if images.device.type == "cpu":
        return functional.avg_pool2d(images, kernel, stride, padding)
    return mean_of_windows(images, kernel, stride, padding)


def mean_of_windows(images: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Return the same by adding shifted images.

    The backward pass of CUDA's own mean pool is wrong where it has padding and its slopes have channels last.
    """
    return reduce(torch.add, _shifted(images, kernel, stride, padding, 0.0)) / kernel**2


def _shifted(images: Tensor, kernel: int, stride: int, padding: int, value: float) -> Iterator[Tensor]:
    """Yield padded images so shifted that each holds one number of every window; `value` stands in the padding."""
    padded = functional.pad(images, (padding,) * 4, value=value)
    height, width = ((size - kernel) // stride + 1 for size in padded.shape[2:])
    ends = (stride * (height - 1) + 1, stride * (width - 1) + 1)
    for down, right in product(range(kernel), repeat=2):
        yield padded[:, :, down : down + ends[0] : stride, right : right + ends[1] : stride]


def attention(queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
    """Return softmax(queries keys^T / sqrt(features)) values of each head, shapes (m, heads, positions, features)."""
    if queries.device.type == "cpu":
        return functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
    return spelled_attention(queries, keys, values, causal=causal)


def spelled_attention(queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
    """Return the same by plain products."""
    scores = (queries * queries.shape[-1] ** -0.5) @ keys.mT
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -inf)
    found: Tensor = scores.softmax(-1) @ values
    return found
