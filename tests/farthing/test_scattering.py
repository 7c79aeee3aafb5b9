"""Scattering features against theory, and against a slow transform written down independently."""

from math import cos, pi, sin

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing import scattering as module
from farthing.scattering import group_normalised, scattering

ANGLES = 8
ORDERS = (slice(0, 1), slice(1, 17), slice(17, 81))
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def images() -> Floats:
    """Smooth shapes with an edge, on a dark ground with a wide border."""
    rng = np.random.default_rng(20261121)
    made = np.zeros((6, 28, 28))
    for image in made:
        rows, columns = rng.integers(9, 13, 2)
        image[rows : rows + 8, columns : columns + 5] = rng.uniform(0.2, 1, (8, 5))
    return made


def bump(at_rows: Floats, at_columns: Floats, scale: int, angle: int) -> NDArray[np.complex128]:
    """A Morlet wavelet at points of the plane, in pixels: a wave under a slanted bell, less as much of the bell."""
    turn, spread, slant, frequency = pi * angle / ANGLES, 0.8 * 2**scale, 0.5, 3 * pi / 4 / 2**scale
    along = cos(turn) * at_columns + sin(turn) * at_rows
    across = cos(turn) * at_rows - sin(turn) * at_columns
    bell = np.exp(-(along**2 + slant**2 * across**2) / (2 * spread**2)) * slant / (2 * pi * spread**2)
    wave = bell * np.exp(1j * frequency * along)
    return wave - wave.sum() / bell.sum() * bell


def matrix(kernel: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Every pixel's weight for every other: the convolution around the edges, as a product."""
    size = len(kernel)
    rows, columns = (at.ravel() for at in np.indices((size, size)))
    return kernel[(rows[:, None] - rows) % size, (columns[:, None] - columns) % size]


def slowly(image: Floats) -> Floats:
    """Orders 0 to 2 of a 28 x 28 image without a Fourier transform or a coarser grid on the way."""
    padded = np.pad(image, 4, mode="reflect")
    size = len(padded)
    near = (np.arange(size) + size // 2) % size - size // 2
    rows, columns = np.meshgrid(near, near, indexing="ij")
    bell = np.exp(-(rows**2 + columns**2) / (2 * 1.6**2)) + 0j
    fine, coarse = ([matrix(bump(rows, columns, scale, angle)) for angle in range(ANGLES)] for scale in (0, 1))
    first = [np.abs(one @ padded.ravel()) for one in fine]
    second = [np.abs(one @ wave) for wave in first for one in coarse]
    waves = [padded.ravel(), *first, *(np.abs(one @ padded.ravel()) for one in coarse), *second]
    means = (matrix(bell / bell.sum()).real @ np.stack(waves, axis=1)).T
    return means.reshape(-1, size, size)[:, 4:-4:4, 4:-4:4]


def test_features_are_those_of_the_transform_written_down_slowly(images: Floats) -> None:
    """The effect of aliasing between grids of two sizes is within a fiftieth of each order's largest coefficient."""
    found, wanted = scattering(images[:1])[0], slowly(images[0])
    for order in ORDERS:
        assert np.abs(found[order] - wanted[order]).max() < 0.02 * wanted[order].max()


def test_an_image_without_waves_has_its_mean_alone() -> None:
    found = scattering(np.full((1, 28, 28), 0.7))
    assert found[0, 0] == pytest.approx(0.7, abs=1e-5)
    assert np.abs(found[0, 1:]).max() < 1e-6


def test_what_moves_by_four_pixels_moves_by_one_feature(images: Floats) -> None:
    moved = scattering(np.roll(images, (4, 0), (1, 2)))
    assert np.abs(moved[:, :, 2:5] - scattering(images)[:, :, 1:4]).max() < 1e-5


def test_what_moves_by_one_pixel_hardly_changes(images: Floats) -> None:
    moved = scattering(np.roll(images, (0, 1), (1, 2)))
    assert np.linalg.norm(moved - scattering(images)) < 0.6 * np.linalg.norm(np.roll(images, 1, 2) - images) / 4


def test_a_mirrored_image_has_the_mirrored_angles(images: Floats) -> None:
    """Along the diagonal, which sends angle a of eight to 4 - a, and leaves every grid where it is."""
    turned = scattering(images.swapaxes(1, 2)).swapaxes(2, 3)
    angles = (4 - np.arange(ANGLES)) % ANGLES
    first = 1 + ANGLES * np.arange(2)[:, None] + angles
    second = 17 + ANGLES * angles[:, None] + angles
    order = np.concatenate([[0], first.ravel(), second.ravel()])
    assert np.abs(turned[:, order] - scattering(images)).max() < 1e-5


def test_no_two_images_come_to_lie_further_apart(images: Floats) -> None:
    """A feature stands for sixteen pixels; energy is lost and never made, up to where filters overlap."""
    noisy = images + np.random.default_rng(1).normal(0, 0.3, images.shape)
    apart = 16 * np.square(scattering(noisy) - scattering(images)).sum((1, 2, 3))
    assert (apart < 1.2 * np.square(noisy - images).sum((1, 2))).all()


def test_a_record_has_the_same_features_whatever_else_is_sent(images: Floats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IMAGES_AT_ONCE", 4)
    together = scattering(images)
    assert all(np.allclose(scattering(image), together[place], atol=1e-6) for place, image in enumerate(images))
    normal = group_normalised(together, 27)
    assert np.allclose(group_normalised(together[2:3], 27), normal[2:3], atol=1e-5)


def test_sizes_are_those_that_are_promised(images: Floats) -> None:
    assert scattering(np.zeros((2, 3, 32, 30))).shape == (2, 3, 81, 8, 8)
    assert scattering(np.zeros((2, 28, 28)), scales=3, angles=4).shape == (2, 61, 4, 4)
    assert scattering(np.zeros((0, 28, 28))).shape == (0, 81, 7, 7)
    with pytest.raises(ValueError, match="too small"):
        scattering(np.zeros((1, 8, 8)))
    with pytest.raises(ValueError, match="equal groups"):
        group_normalised(scattering(images), 26)


def test_each_group_has_mean_zero_and_variance_one(images: Floats) -> None:
    groups = group_normalised(100 * scattering(images), 27).reshape(len(images), 27, -1)
    assert np.abs(groups.mean(2)).max() < 1e-4
    assert np.abs(groups.var(2) - 1).max() < 1e-2
