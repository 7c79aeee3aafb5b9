"""Scattering features of images: a fixed transform that no record had a part in, applied before an upload.

A linear head on them often beats a network trained from scratch where privacy is dear: the filters are known from
theory, so the noise falls on the head's few parameters alone. NumPy does the work, which the SDK itself does not need.

Source: Bruna and Mallat (2013) for the transform and its Morlet filters; Tramer and Boneh (2021) for private heads on
it. Nothing is fitted: the same image has the same features whatever else is in the file.

>>> import numpy as np
>>> from farthing.scattering import group_normalised, scattering
>>> features = scattering(np.eye(28)[None])
>>> features.shape, group_normalised(features, 27).shape
((1, 81, 7, 7), (1, 81, 7, 7))
"""

from functools import cache
from math import ceil, cos, pi, sin
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Spectra = npt.NDArray[np.complexfloating[Any, Any]]

SPREAD: Final = 0.8
"""Of a filter's envelope, in pixels at the finest scale; twice that at each coarser one."""
FREQUENCY: Final = 3 * pi / 4
"""Of a wave at the finest scale, in radians a pixel; half that at each coarser one."""
IMAGES_AT_ONCE: Final = 128
FLOOR: Final = 1e-5
"""Added to a variance before it divides, as layers of networks do."""


def scattering(images: Any, scales: int = 2, angles: int = 8) -> "Floats":  # noqa: ANN401 - whatever NumPy reads
    """Return the scattering coefficients of orders 0, 1 and 2.

    The first channel is the image's local mean. Then, for each scale and angle, comes the mean length of its wave,
    coarser scales last. Then, for each pair of a scale and a coarser one, and each pair of angles, comes that of the
    wave of the wave. With 2 scales and 8 angles that is 1 + 16 + 64 = 81 channels.

    Args:
        images: shape (..., height, width), in whatever units: features are in the same.
        scales: J; a feature is a mean over some 2^J pixels, and maps are 2^J times smaller.
        angles: L, over half a turn.

    Returns:
        Shape (..., channels, ceil(height/2^J), ceil(width/2^J)), float32.

    Raises:
        ImportError: NumPy is not installed.
        ValueError: an image is too small to be mirrored over 2^J pixels at its edges.
    """
    import numpy as np  # noqa: PLC0415 - only those who have images pay for NumPy

    given = np.asarray(images)
    *shape, height, width = given.shape
    if min(height, width) <= 2 * 2**scales:
        raise ValueError(f"images of {height} x {width} are too small for {scales} scales: take fewer")
    flat = given.reshape(-1, height, width)
    channels = 1 + angles * scales + angles**2 * (scales * (scales - 1) // 2)
    sizes = (ceil(height / 2**scales), ceil(width / 2**scales))
    found = np.empty((len(flat), channels, *sizes), dtype=np.float32)
    # In blocks, so that the spectra of all images are never in memory at once.
    for start in range(0, len(flat), IMAGES_AT_ONCE):
        block = slice(start, start + IMAGES_AT_ONCE)
        found[block] = _scatter(flat[block].astype(np.float32), scales, angles)
    return found.reshape(*shape, channels, *sizes)


def group_normalised(features: Any, groups: int) -> "Floats":  # noqa: ANN401 - whatever NumPy reads
    """Return features whose neighbouring channels, group by group, have mean 0 and variance 1 within each record.

    Source: Wu and He (2018). It mixes no records, so it costs nothing. Nearly all numbers are between -4 and 4.

    Args:
        features: shape (n, channels, height, width).
        groups: a divisor of the number of channels.

    Returns:
        The same shape, float32.

    Raises:
        ImportError: NumPy is not installed.
        ValueError: the groups are no divisor.
    """
    import numpy as np  # noqa: PLC0415 - as above

    given = np.asarray(features, dtype=np.float32)
    if given.shape[1] % groups:
        raise ValueError(f"{given.shape[1]} channels are not {groups} equal groups")
    flat = given.reshape(len(given), groups, -1)
    centred = flat - flat.mean(axis=2, keepdims=True)
    length = np.sqrt(np.square(centred).mean(axis=2, keepdims=True) + np.float32(FLOOR))
    found: Floats = (centred / length).reshape(given.shape)
    return found


def _scatter(images: "Floats", scales: int, angles: int) -> "Floats":
    """Return the coefficients of a few images, shape (n, channels, height', width')."""
    import numpy as np  # noqa: PLC0415 - as above

    step = 2**scales
    sizes = [ceil(size / step) * step for size in images.shape[1:]]
    # Mirrored edges keep the transform, which is periodic, from meeting the opposite border.
    edges = [(step, step + size - own) for size, own in zip(sizes, images.shape[1:], strict=True)]
    padded = np.pad(images, [(0, 0), *edges], mode="reflect")
    height, width = padded.shape[1:]
    spectrum = np.fft.fft2(padded)
    means = [_mean(padded, scales, 0)]
    first, second = [], []
    for scale in range(scales):
        for angle in range(angles):
            wave = _wave(spectrum, _morlet(height, width, scale, angle, angles), scale)
            first.append(_mean(wave, scales, scale))
            if scale + 1 == scales:
                continue
            waves = np.fft.fft2(wave)
            for coarser in range(scale + 1, scales):
                for other in range(angles):
                    filtered = _morlet(height, width, coarser, other, angles, scale)
                    second.append(_mean(_wave(waves, filtered, coarser - scale), scales, coarser))
    return np.stack(means + first + second, axis=1)


def _wave(spectrum: "Spectra", filtered: "Floats", halvings: int) -> "Floats":
    """Return the length of each point's wave, on a grid `halvings` times coarser."""
    import numpy as np  # noqa: PLC0415 - as above

    lengths: Floats = np.abs(np.fft.ifft2(_folded(spectrum * filtered, halvings)))
    return lengths


def _folded(spectrum: "Spectra", halvings: int) -> "Spectra":
    """Return the spectrum of every 2^halvings-th point along the last two axes: the mean over what falls together."""
    part = 2**halvings
    *shape, height, width = spectrum.shape
    folded: Spectra = spectrum.reshape(*shape, part, height // part, part, width // part).mean(axis=(-4, -2))
    return folded


def _mean(waves: "Floats", scales: int, halved: int) -> "Floats":
    """Return the Gaussian means over some 2^scales pixels, without the mirrored edges; waves are `halved` already."""
    import numpy as np  # noqa: PLC0415 - as above

    rows, columns = (_smoothing(size * 2**halved, scales, halved) for size in waves.shape[1:])
    means: Floats = np.matmul(rows @ waves, columns.T, dtype=np.float32)
    return means


@cache
def _smoothing(size: int, scales: int, halved: int) -> "Floats":
    """Return the matrix, shape (size/2^scales - 2, size/2^halved), of a Gaussian mean at every 2^scales-th point."""
    import numpy as np  # noqa: PLC0415 - as above

    spread = SPREAD * 2 ** (scales - 1)
    turns = 2 * pi * np.fft.fftfreq(size)
    # The neighbouring copies of a sampled Gaussian's spectrum are added, as for the filters below.
    spectrum = sum(np.exp(-(spread**2) / 2 * (turns + 2 * pi * around) ** 2) for around in (-1, 0, 1))
    part = 2**halved
    kernel = np.fft.ifft(spectrum.reshape(part, -1).sum(axis=0)).real
    points = size // part
    apart = (np.arange(1, size // 2**scales - 1)[:, None] * 2 ** (scales - halved) - np.arange(points)) % points
    matrix: Floats = kernel[apart].astype(np.float32)
    return matrix


@cache
def _morlet(height: int, width: int, scale: int, angle: int, angles: int, halved: int = 0) -> "Floats":
    """Return a filter's spectrum, real, shape (height, width)/2^halved: a bump around its frequency, zero at zero."""
    import numpy as np  # noqa: PLC0415 - as above

    spread, frequency, slant = SPREAD * 2**scale, FREQUENCY / 2**scale, 4 / angles
    turn = pi * angle / angles
    part = 2**halved
    bump, base = np.zeros((height, width)), np.zeros((height, width))
    # A sampled filter's spectrum repeats with each full turn; further copies are too small to count.
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            rows = 2 * pi * (np.fft.fftfreq(height)[:, None] + down)
            columns = 2 * pi * (np.fft.fftfreq(width)[None] + right)
            along = cos(turn) * columns + sin(turn) * rows
            across = (cos(turn) * rows - sin(turn) * columns) / slant
            bump += np.exp(-(spread**2) / 2 * ((along - frequency) ** 2 + across**2))
            base += np.exp(-(spread**2) / 2 * (along**2 + across**2))
    # Zero at frequency zero, so that a constant image makes no wave.
    spectrum = bump - bump[0, 0] / base[0, 0] * base
    found: Floats = spectrum.reshape(part, height // part, part, width // part).sum(axis=(0, 2)).astype(np.float32)
    return found
