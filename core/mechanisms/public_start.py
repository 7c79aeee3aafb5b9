"""Where a network's training starts without weights of its own: draws that its layers determine, the same for all.

Nobody's records have a part in them, and anybody can draw them again: the stream is keyed by the SHA-256 of the layers'
canonical JSON.
"""

import json
from hashlib import sha256

import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.models.network.layers import Layer, Shape
from core.models.network.model import Train
from core.models.network.trained import start_parameters


def key_of(layers: tuple[Layer, ...]) -> bytes:
    """Return the SHA-256 of layers as canonical JSON: names sorted, no spaces."""
    described = [layer.model_dump(mode="json") for layer in layers]
    return sha256(json.dumps(described, sort_keys=True, separators=(",", ":")).encode()).digest()


def draw_start(layers: tuple[Layer, ...], given: Shape, train: Train) -> dict[str, Tensor]:
    """Return the public start of all parameters, and of low-rank changes: float32, by name, in their order.

    Each is normal with the spread that its layer declares, or what its layer says it starts at.
    """
    generator = SimulationGenerator(int.from_bytes(key_of(layers)[:4], "big"))
    found = {}
    for one in start_parameters(layers, given, train):
        drawn = generator.normal(*one.shape) if one.spread else torch.zeros(one.shape, dtype=torch.float64)
        found[one.name] = (one.start + one.spread * drawn).to(torch.float32)
    return found
