"""Opacus' own MNIST example on other images, in the environment of `environments.py`.

`python -m benchmarks.peers.digits_with_opacus FILE BATCH EPOCHS LEARNING_RATE CLIP NOISE|epsilon=EPSILON SEED` prints
JSON: the share of test images that are named rightly, epsilon by Opacus' accountant, and its noise multiplier. Network,
normalisation and optimizer are those of the example, `examples/mnist.py` of Opacus 1.6.
"""

import json
import sys
import warnings

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MEAN, DEVIATION = 0.1307, 0.3081
DELTA = 1e-5


def example() -> nn.Module:
    """Return the example's network, 26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def main(file: str, batch: int, epochs: int, rate: float, clip: float, noise: str, seed: int) -> None:
    """Train once and print."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    found = np.load(file, allow_pickle=False)
    images, tests = (
        (torch.from_numpy(found[name])[:, None].float() / 255 - MEAN) / DEVIATION for name in ("images", "tests")
    )
    labels, answers = (torch.from_numpy(found[name]).long() for name in ("labels", "answers"))
    module, engine = example(), PrivacyEngine()
    loader = DataLoader(TensorDataset(images, labels), batch_size=batch)
    target = noise.removeprefix("epsilon=")
    multiplier = (
        float(noise)
        if target == noise
        else get_noise_multiplier(
            target_epsilon=float(target),
            target_delta=DELTA,
            sample_rate=1 / len(loader),
            epochs=epochs,
            accountant="prv",
        )
    )
    module, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=rate),
        data_loader=loader,
        noise_multiplier=multiplier,
        max_grad_norm=clip,
    )
    for _ in range(epochs):
        for given, wanted in loader:
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(module(given), wanted))
            optimizer.step()
    with torch.no_grad():
        share = (module(tests).argmax(1) == answers).double().mean()
    steps = epochs * len(loader)
    told = {"share": float(share), "epsilon": engine.get_epsilon(DELTA), "noise": multiplier, "steps": steps}
    print(json.dumps(told))


if __name__ == "__main__":
    given, size, passes, speed, longest, noised, number = sys.argv[1:]
    main(given, int(size), int(passes), float(speed), float(longest), noised, int(number))
