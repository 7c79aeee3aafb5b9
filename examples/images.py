"""Images by small networks, through the API: `python -m examples.images [fashion|fashion-scattering|mnist|...]`.

Uploads the training images, or their scattering features, trains by `clipped_sgd` at each epsilon as often as asked,
exports each network as ONNX and counts how many test images it names rightly. The table goes to
`docs/explanation/utility.md`.
There are no seeds in the service: every job has fresh noise and fresh samples. The test images are public here and
never leave this process.

The network is that of Tramer and Boneh (2021), whose linear head on scattering features is the other one.
`--epsilon` at delta 1e-5, several may be given; `--jobs` at each. `--choose` uploads four fifths of the training images
and tries each of a few settings on the rest of them.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime

from examples.bank_demo import service
from examples.datasets import PIXEL, Images, fashion_mnist, mnist
from examples.utility import PAGE, measured, store
from farthing import Client, network
from farthing.models import Model
from farthing.networks import Layer, activation, conv2d, flatten, linear, pool2d
from farthing.scattering import group_normalised, scattering

DELTA: Final = "1e-5"
BUDGET: Final = {"epsilon": "25", "delta": DELTA, "accept_delta": True, "accept_weak_privacy": True}
"""For all jobs together; the records are public. Its delta is above a tenth of 1/n."""
CLASSES: Final = 10
HELD_OUT_EVERY: Final = 5
CONVOLUTIONS: Final = (
    conv2d(16, 8, stride=2, padding=2),
    activation("tanh"),
    pool2d(2, stride=1),
    conv2d(32, 4, stride=2),
    activation("tanh"),
    pool2d(2, stride=1),
    flatten(),
    linear(32),
    activation("tanh"),
    linear(CLASSES),
)
GROUPS: Final = 27
WIDEST: Final = 4.0
"""Normalised features are cut here, and the range between is coded in 256 steps: a byte a feature."""

OPACUS: Final = {"1.2": 0.8891, "3": 0.9192, "7": 0.9336}
"""The accuracy of Opacus' MNIST example on the same images: `python -m benchmarks.peers.digits batch`."""


@dataclass(frozen=True)
class Recipe:
    """The training of a model on a set of images."""

    title: str
    load: Callable[[], Images]
    prepare: Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]
    """Images, shape (n, 28, 28), to what is uploaded, bytes of shape (n, channels, height, width)."""
    layers: Sequence[Layer]
    optimizer: Mapping[str, Any]
    """Of `clipped_sgd`; `epochs` stands for the steps that read each image so often in expectation, and `tail` for the
    share of them whose iterates are averaged."""
    goals: Mapping[str, float]
    """The accuracy to reach at each epsilon; these epsilons are run where none is named."""
    tried: Sequence[Mapping[str, Any]] = ({},)
    """Changes of the settings that `--choose` compares."""


def as_they_are(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return images of one channel."""
    return images[:, None]


def as_features(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return normalised scattering features, shape (n, 81, 7, 7), a byte each."""
    found = group_normalised(scattering(images / np.float32(PIXEL)), GROUPS)
    pixels: npt.NDArray[np.float32] = np.rint((np.clip(found, -WIDEST, WIDEST) + WIDEST) * (PIXEL / (2 * WIDEST)))
    return pixels.astype(np.uint8)


def sgd(batch: int, epochs: int, step_size: float, clip: float, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return settings of steps with momentum."""
    rule = {"kind": "sgd", "momentum": 0.9}
    return {"batch": batch, "epochs": epochs, "step_size": step_size, "clip": clip, "rule": rule, **more}


RECIPES: Final = {
    "fashion": Recipe(
        "Fashion-MNIST, convolutions", fashion_mnist, as_they_are, CONVOLUTIONS, sgd(2048, 40, 4.0, 0.1), {"3": 0.86}
    ),
    "fashion-scattering": Recipe(
        "Fashion-MNIST, scattering and a linear head",
        fashion_mnist,
        as_features,
        (flatten(), linear(CLASSES)),
        sgd(8192, 40, 64.0, 0.1, tail=0.25),
        {"3": 0.895},
    ),
    "mnist": Recipe(
        "MNIST, 8,000 images, convolutions",
        mnist,
        as_they_are,
        CONVOLUTIONS,
        sgd(2048, 40, 2.0, 0.1),
        OPACUS,
        (
            {},
            {"tail": 0.25},
            {"step_size": 1.0},
            {"step_size": 4.0},
            {"epochs": 80},
            {"epochs": 80, "tail": 0.25},
            {"batch": 1024},
            {"batch": 1024, "tail": 0.25},
            {"batch": 1024, "epochs": 20},
            {"batch": 4096, "epochs": 80, "step_size": 4.0},
        ),
    ),
    "mnist-scattering": Recipe(
        "MNIST, 8,000 images, scattering and a linear head",
        mnist,
        as_features,
        (flatten(), linear(CLASSES)),
        sgd(1024, 20, 6.0, 0.1, tail=0.25),
        OPACUS,
    ),
}


def declared(inputs: npt.NDArray[np.uint8], name: str) -> dict[str, Any]:
    """Return what an owner declares, for far more than the jobs cost."""
    image = {"name": "image", "type": "array", "shape": list(inputs.shape[1:]), "lower": 0, "upper": PIXEL}
    label = {"name": "label", "type": "category", "values": [str(label) for label in range(CLASSES)]}
    return {"name": name, "columns": [image, label], "budget": BUDGET}


class Learnt:
    """Images that are uploaded, and others that models are tried on.

    Args:
        client: of a running service.
        name: of the dataset.
        recipe: of the training on them.
        images: the former, and the latter as its test images.
    """

    def __init__(self, client: Client, name: str, recipe: Recipe, images: Images) -> None:
        inputs, self._labels = recipe.prepare(images.train_images), images.test_labels
        self._recipe, self._held_out, self.units = recipe, recipe.prepare(images.test_images), len(inputs)
        records = {"image": inputs, "label": images.train_labels.astype(str)}
        self._dataset = client.upload(records, declared(inputs, name)).id
        print(f"{recipe.title}: {self.units:,} to train on, {len(self._labels):,} to test", flush=True)

    def job(self, epsilon: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        """Return the job that is posted."""
        optimizer = {**self._recipe.optimizer, **changes}
        steps = optimizer.pop("epochs") * self.units // optimizer["batch"]
        tail = optimizer.pop("tail", None)
        if tail is not None:
            optimizer["average"] = {"kind": "tail", "steps": int(tail * steps)}
        return {
            "dataset": self._dataset,
            "model": network("label", self._recipe.layers),
            "optimizer": {"kind": "clipped_sgd", "steps": steps, **optimizer},
            "privacy": {"epsilon": epsilon},
            "inference": {"intervals": False},
            "retry_allowance": 0,
        }

    def score(self, model: Model) -> float:
        """Return the share of the others whose class a released model names."""
        return share_right(model.export("onnx"), self._held_out, self._labels)


def share_right(graph: bytes, inputs: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> float:
    """Return the share of records whose class an ONNX graph names."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    right = 0
    for start in range(0, len(labels), 1000):
        part = slice(start, start + 1000)
        (scores,) = session.run(["scores"], {given.name: inputs[part].astype(np.float32)})
        right += int((np.asarray(scores).argmax(1) == labels[part]).sum())
    return right / len(labels)


def run(client: Client, name: str, recipe: Recipe, epsilons: Sequence[str], jobs: int, page: Path = PAGE) -> None:
    """Upload once, train at each epsilon, print and store under a name."""
    images = recipe.load()
    learnt = Learnt(client, name, recipe, images)
    for epsilon in epsilons or recipe.goals:
        line = measured(client, learnt.job(epsilon), learnt.score, jobs, recipe.goals.get(epsilon))
        store(name, recipe.title, {"records": learnt.units, "delta": DELTA, **recipe.optimizer}, [line], page)
        print(line.row(recipe.title), flush=True)


def choose(client: Client, name: str, recipe: Recipe, epsilons: Sequence[str], jobs: int) -> None:
    """Print how each of a few settings does on a fifth of the training images."""
    images = recipe.load()
    apart = np.arange(len(images.train_labels)) % HELD_OUT_EVERY == 0
    split = Images(
        images.train_images[~apart], images.train_labels[~apart], images.train_images[apart], images.train_labels[apart]
    )
    learnt = Learnt(client, name, recipe, split)
    for changes in recipe.tried:
        print(changes or "as they are", flush=True)
        for epsilon in epsilons or recipe.goals:
            found = measured(client, learnt.job(epsilon, **changes), learnt.score, jobs)
            print(found.row("on training images"), flush=True)


def main() -> None:
    """Run the service, and leave nothing of it behind but the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", nargs="?", choices=RECIPES, default="fashion")
    parser.add_argument("--choose", action="store_true", help="compare settings on training images")
    parser.add_argument("--epsilon", nargs="+", default=[])
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--page", type=Path, default=PAGE, help="with the table; JSON goes to a folder of its name")
    told = parser.parse_args()
    with service("images") as client:
        recipe = RECIPES[told.recipe]
        if told.choose:
            choose(client, told.recipe, recipe, told.epsilon, told.jobs)
        else:
            run(client, told.recipe, recipe, told.epsilon, told.jobs, told.page)


if __name__ == "__main__":
    main()
