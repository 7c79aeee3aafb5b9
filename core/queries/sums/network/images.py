"""Convolutions: the patches of an image that a kernel meets, and the order of its gradients.

Images lie in memory with their channels last, (records, height, width, channels): a window's rows are then runs of
numbers, the products need no other arrangement, and pooling runs over channels at once. A gradient of weights, too, is
made with its channels last, (made channels, kernel, kernel, given channels), and its sum rearranged in the end.
"""

from torch import Tensor
from torch.nn import functional

from core.models.network.layers import Conv2d


def channels_last(images: Tensor) -> Tensor:
    """Return images of shape (m, channels, height, width), their channels last in memory."""
    if images.shape[1] == 1:  # strides shall say so even of a single channel, for what is made of it follows them
        return images.reshape(len(images), *images.shape[2:], 1).permute(0, 3, 1, 2)
    return images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def windows(images: Tensor, layer: Conv2d) -> Tensor:
    """Return what the kernel meets at each place, shape (m, places, kernel * kernel * channels), of images as above."""
    kernel, stride, edge = layer.kernel, layer.stride, layer.padding
    x = images.permute(0, 2, 3, 1)
    x = functional.pad(x, (0, 0, edge, edge, edge, edge)) if edge else x.contiguous()
    m, height, width, channels = x.shape
    places = ((height - kernel) // stride + 1, (width - kernel) // stride + 1)
    record, row, column, one = x.stride()
    met = x.as_strided(
        (m, *places, kernel, kernel, channels), (record, row * stride, column * stride, row, column, one)
    )
    return met.reshape(m, places[0] * places[1], kernel * kernel * channels)


def channels_back(total: Tensor, offset: int, shape: tuple[int, ...]) -> None:
    """Rearrange the sum of a convolution's weights, in place, to the order of its parameter.

    Args:
        total: of all parameters, shape (p,).
        offset: where the weights begin.
        shape: theirs, (made channels, given channels, kernel, kernel).
    """
    made, given, kernel, _ = shape
    here = total[offset : offset + made * given * kernel * kernel]
    here.copy_(here.view(made, kernel, kernel, given).permute(0, 3, 1, 2).flatten())
