"""Kernels whose floats are the same whenever shapes and inputs are: on a CPU all of them, on a GPU some.

A GPU's fastest kernels add up in whatever order threads arrive. Then a record's floats would not be a function of that
record, and sums of parts without the changed record would differ between neighbours, which no grid charges for. On a
GPU, torch is therefore set to refuse such kernels. The backward passes of pooling, and attention, which have no others,
are written in deterministic operations.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import product, repeat
from math import inf
from typing import Any

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
    filling: Any = torch.utils.deterministic
    before, fills = torch.get_deterministic_debug_mode(), filling.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("error")
    # All memory is written before it is read; filling it first would be two of five launches.
    filling.fill_uninitialized_memory = False
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_deterministic_debug_mode(before)
        filling.fill_uninitialized_memory = fills


def max_pool2d(images: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Return the largest number of each window, shape (m, channels, height', width')."""
    if images.device.type == "cpu":
        return functional.max_pool2d(images, kernel, stride, padding)
    return largest_of_windows(images, kernel, stride, padding)


def largest_of_windows(images: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Return the same, with slopes added up window place by window place."""
    found: Tensor = _Largest.apply(images, kernel, stride, padding)  # type: ignore[no-untyped-call] # torch's stub
    return found


def mean_pool2d(images: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Return the mean of each window, padding counted as zeros, shape (m, channels, height', width')."""
    if images.device.type == "cpu":
        return functional.avg_pool2d(images, kernel, stride, padding)
    return mean_of_windows(images, kernel, stride, padding)


def mean_of_windows(images: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Return the same, with slopes added up window place by window place.

    The backward pass of CUDA's own mean pool is wrong where it has padding and its slopes have channels last.
    """
    found: Tensor = _Mean.apply(images, kernel, stride, padding)  # type: ignore[no-untyped-call] # torch's stub
    return found


class _Largest(torch.autograd.Function):
    """The first largest number of each window gets its slope."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, kernel: int, stride: int, padding: int) -> Tensor:  # noqa: ANN401 - torch's
        made, places = functional.max_pool2d(images, kernel, stride, padding, return_indices=True)
        ctx.save_for_backward(places)
        ctx.shape, ctx.sizes = images.shape, (kernel, stride, padding)
        return made

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - as above
        (places,), (slope,), (kernel, stride, padding) = ctx.saved_tensors, slopes, ctx.sizes
        width = ctx.shape[3]
        within = places - _corners(*places.shape[2:], width, stride, padding, slope.device)
        each = (within == row * width + column for row, column in product(range(kernel), repeat=2))
        return _spread(slope, each, ctx.shape, ctx.sizes), None, None, None


class _Mean(torch.autograd.Function):
    """Each number of a window gets an equal share of its slope."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, kernel: int, stride: int, padding: int) -> Tensor:  # noqa: ANN401 - torch's
        ctx.shape, ctx.sizes = images.shape, (kernel, stride, padding)
        return functional.avg_pool2d(images, kernel, stride, padding)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - as above
        share = slopes[0] / ctx.sizes[0] ** 2
        return _spread(share, None, ctx.shape, ctx.sizes), None, None, None


@lru_cache(maxsize=64)
def _corners(down: int, right: int, width: int, stride: int, padding: int, device: torch.device) -> Tensor:
    """Return where in an image each window begins, shape (height', width'); public, and made once."""
    with torch.inference_mode(mode=False):  # passes outside it use them
        rows, columns = (torch.arange(one, device=device) * stride - padding for one in (down, right))
        return rows.view(-1, 1) * width + columns


def _spread(
    slopes: Tensor, chosen: Iterable[Tensor] | None, shape: tuple[int, ...], sizes: tuple[int, int, int]
) -> Tensor:
    """Return the images' slopes: those of windows, added up place by place.

    Args:
        slopes: of windows, shape (m, channels, height', width').
        chosen: for each place in a window, which windows' slopes count there, bool, of the same shape; None: all do.
        shape: of the images.
        sizes: kernel, stride and padding.
    """
    kernel, stride, padding = sizes
    m, channels, height, width = (*shape[:2], shape[2] + 2 * padding, shape[3] + 2 * padding)
    found = slopes.new_zeros(m, height, width, channels).permute(0, 3, 1, 2)
    ends = [stride * (size - 1) + 1 for size in slopes.shape[2:]]
    masks = repeat(None) if chosen is None else iter(chosen)
    for (down, right), mask in zip(product(range(kernel), repeat=2), masks, strict=False):
        some = found[:, :, down : down + ends[0] : stride, right : right + ends[1] : stride]
        if mask is None:
            some.add_(slopes)
        else:
            some.addcmul_(slopes, mask)
    return found[:, :, padding : height - padding, padding : width - padding]


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
