"""Images by a small convolutional network, through the API: `python -m examples.images [fashion|mnist]`.

Uploads the training images with a budget that the job spends whole, trains the network of Tramer and Boneh (2021) by
`clipped_sgd`, exports it as ONNX and counts how many test images it names rightly; so for each seed that is asked for.
(There are no seeds in the service: a repetition has fresh noise and fresh samples.) The test images are public here and
never leave this process.

`--epsilon` at delta 1e-5, `--epochs` in expectation, `--repeat` how often.
"""

import argparse
import sys
import time
from typing import Any, Final

import numpy as np
import onnxruntime

from examples.bank_demo import service
from examples.datasets import Images, fashion_mnist, mnist
from farthing import Client, network
from farthing.networks import activation, conv2d, flatten, linear, pool2d

SIDE: Final = 28
PIXEL: Final = 255
LAYERS: Final = [
    conv2d(16, 8, stride=2, padding=2),
    activation("tanh"),
    pool2d(2, stride=1),
    conv2d(32, 4, stride=2),
    activation("tanh"),
    pool2d(2, stride=1),
    flatten(),
    linear(32),
    activation("tanh"),
    linear(10),
]
COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "image", "type": "array", "shape": [1, SIDE, SIDE], "lower": 0, "upper": PIXEL},
    {"name": "label", "type": "category", "values": [str(label) for label in range(10)]},
]
BATCHES: Final = {"fashion": 2048, "mnist": 512}
RULE: Final = {"kind": "sgd", "momentum": 0.9}
CLIP: Final = 0.1
STEP: Final = 4.0
"""For 2,048 images of 60,000; as the batch for others."""


def run(client: Client, name: str, images: Images, epsilon: str, epochs: int) -> tuple[float, str]:
    """Train once; return the part of test images that are named rightly, and what was spent."""
    units, batch = len(images.train_images), BATCHES[name]
    dataset = client.upload(
        {"image": images.train_images.reshape(-1, 1, SIDE, SIDE), "label": images.train_labels.astype(str)},
        {"name": name, "columns": COLUMNS, "budget": {"epsilon": epsilon, "delta": "1e-5"}},
    )
    optimizer = {"kind": "clipped_sgd", "batch": batch, "steps": epochs * units // batch, "clip": CLIP}
    job = client.submit(
        {
            "dataset": dataset.id,
            "model": network("label", LAYERS),
            "optimizer": {**optimizer, "step_size": STEP * batch / BATCHES["fashion"], "rule": RULE},
            "privacy": {"percent": "100"},
            "inference": {"intervals": False},
            "retry_allowance": 0,
        }
    )
    ended = client.wait(job.id)
    assert ended.result is not None, f"the job ended as {ended.state}"
    graph = client.model(ended.result.model).export("onnx")
    return accuracy(graph, images), ended.cost.spent.epsilon_alone or ""


def accuracy(graph: bytes, images: Images) -> float:
    """Return the part of test images that an ONNX graph names rightly."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    pixels = images.test_images.reshape(-1, 1, SIDE, SIDE).astype(np.float32)
    (scores,) = session.run(["scores"], {given.name: pixels})
    return float((np.asarray(scores).argmax(1) == images.test_labels).mean())


def main() -> None:
    """Print a line for each repetition, and the mean with the spread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", nargs="?", choices=BATCHES, default="fashion")
    parser.add_argument("--epsilon", default="3")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    images = {"fashion": fashion_mnist, "mnist": mnist}[asked.images]()
    found = []
    with service("images") as client:
        for _ in range(asked.repeat):
            began = time.monotonic()
            right, spent = run(client, asked.images, images, asked.epsilon, asked.epochs)
            found.append(right)
            seconds = time.monotonic() - began
            sys.stdout.write(f"epsilon {asked.epsilon} (alone {spent}): {right:.4f} right, {seconds:.0f} s\n")
            sys.stdout.flush()
    sys.stdout.write(f"mean {np.mean(found):.4f}, spread {np.max(found) - np.min(found):.4f}\n")


if __name__ == "__main__":
    main()
