"""jax-privacy in its own environment: its clipped gradient, jitted, with its own Poisson batches.

`python -m benchmarks.peers.with_jax TASK BATCH FOLDER METHOD fixed|poisson|equal STEPS`

Parameters are a list of arrays in the order of every side's flat vector; noise is float32, from jax's generator.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.peers.clock import measure, pin

pin()

import jax  # noqa: E402 - after the process is pinned
import jax.numpy as jnp  # noqa: E402 - as above
import numpy as np  # noqa: E402 - as above
from jax import lax  # noqa: E402 - as above
from jax_privacy.batch_selection import CyclicPoissonSampling, pad_to_multiple_of  # noqa: E402 - as above
from jax_privacy.clipping import clipped_grad  # noqa: E402 - as above

from benchmarks.peers.tasks import Task, read, task_named  # noqa: E402 - as above

EQUAL_STEPS = 20
MULTIPLE = 256
"""Samples are padded to a multiple of it, as jax-privacy advises: each new shape is compiled anew."""

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "logistic": [(1, 54)],
    "cnn": [(16, 1, 8, 8), (16,), (32, 16, 4, 4), (32,), (32, 512), (32,), (10, 32), (10,)],
    "mlp": [(256, 3072), (256,), (128, 256), (128,), (10, 128), (10,)],
    "transformer": [
        (256, 64),
        (32, 64),
        (64,),
        (64,),
        (192, 64),
        (192,),
        (64, 64),
        (64,),
        (64,),
        (64,),
        (128, 64),
        (128,),
        (64, 128),
        (64,),
        (2, 64),
        (2,),
    ],
}  # fmt: skip - as the layers group them


def scores(name: str, given: list[jax.Array], record: jax.Array) -> jax.Array:
    """Return the network's outputs for one record."""
    if name == "logistic":
        return record @ given[0][0]
    if name == "mlp":
        made = jax.nn.relu(given[0] @ record.reshape(-1) + given[1])
        return given[4] @ jax.nn.relu(given[2] @ made + given[3]) + given[5]
    if name == "cnn":
        made = pooled(convolved(record[None], given[0], given[1], 3))
        made = pooled(convolved(made, given[2], given[3], 0)).reshape(-1)
        return given[6] @ jax.nn.relu(given[4] @ made + given[5]) + given[7]
    made = given[0][record] + given[1]
    made = made + attended(normed(made, given[2], given[3]), given[4:8])
    hidden = jax.nn.gelu(normed(made, given[8], given[9]) @ given[10].T + given[11], approximate=False)
    made = made + hidden @ given[12].T + given[13]
    return given[14] @ made.mean(0) + given[15]


def convolved(image: jax.Array, weight: jax.Array, bias: jax.Array, padding: int) -> jax.Array:
    """Return a convolution of stride 2 behind a relu, (1, channels, height, width)."""
    made = lax.conv_general_dilated(image, weight, (2, 2), [(padding, padding)] * 2)
    return jax.nn.relu(made + bias[:, None, None])


def pooled(image: jax.Array) -> jax.Array:
    """Return the largest of each 2 x 2 window, stride 1."""
    return lax.reduce_window(image, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")


def normed(made: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    """Return a layer norm."""
    centred = made - made.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def attended(made: jax.Array, given: list[jax.Array], heads: int = 4) -> jax.Array:
    """Return self-attention's output, (positions, width)."""
    positions, width = made.shape
    every = (made @ given[0].T + given[1]).reshape(positions, 3, heads, width // heads).transpose(1, 2, 0, 3)
    query, key, value = every
    shares = jax.nn.softmax(query @ key.transpose(0, 2, 1) * (width // heads) ** -0.5, -1)
    return (shares @ value).transpose(1, 0, 2).reshape(positions, width) @ given[2].T + given[3]


def loss_of(name: str) -> Callable[..., jax.Array]:
    """Return one record's loss."""

    def loss(given: list[jax.Array], record: jax.Array, target: jax.Array) -> jax.Array:
        made = scores(name, given, record)
        if name == "logistic":
            return jnp.logaddexp(0.0, made) - target * made
        return -jax.nn.log_softmax(made)[target]

    return loss


def samples(task: Task) -> Iterator[np.ndarray[Any, Any]]:
    """Yield jax-privacy's Poisson samples, padded with -1."""
    sampler = CyclicPoissonSampling(sampling_prob=task.batch / task.units, iterations=10**6)
    for rows in sampler.batch_iterator(task.units):
        yield pad_to_multiple_of(rows, MULTIPLE)


def main() -> None:
    """Measure, or write the parameters after twenty steps without noise."""
    name, batch, place, method, mode, steps = sys.argv[1:]
    task, folder = task_named(name, int(batch)), Path(place)
    features, target, start = read(folder)
    if mode == "equal":  # in double precision, as all peers
        jax.config.update("jax_enable_x64", True)
        features = features.astype(np.float64) if features.dtype == np.float32 else features
        start = start.astype(np.float64)
    ends = np.cumsum([np.prod(shape) for shape in SHAPES[name]]).astype(int)
    parameters = [jnp.array(a).reshape(s) for a, s in zip(np.split(start, ends[:-1]), SHAPES[name], strict=True)]
    sigma = 0.0 if mode == "equal" else task.sigma
    clipped = clipped_grad(loss_of(name), l2_clip_norm=task.clip, batch_argnums=(1, 2), keep_batch_dim=False)

    def moved_by(given: Any, key: Any, records: Any, aims: Any, padding: Any) -> Any:  # noqa: ANN401 - jax's own trees
        sums = clipped(given, records, aims, is_padding_example=padding)
        following, *keys = jax.random.split(key, len(given) + 1)
        noise = [jax.random.normal(one, at.shape) for one, at in zip(keys, given, strict=True)]
        size = task.step_size / task.batch
        moved = [at - size * (s + sigma * task.clip * z) for at, s, z in zip(given, sums, noise, strict=True)]
        return moved, following

    move = jax.jit(moved_by)
    key, none = jax.random.key(0), np.zeros(task.batch, dtype=bool)
    if mode == "poisson":
        drawn = samples(task)
    else:
        sliced = zip(np.split(features, task.batches), np.split(target, task.batches), strict=True)
        around = cycle([(jnp.asarray(some), jnp.asarray(aims)) for some, aims in sliced])

    def step() -> None:
        nonlocal parameters, key
        if mode == "poisson":
            rows = next(drawn)
            parameters, key = move(parameters, key, features[rows], target[rows], rows < 0)
        else:
            parameters, key = move(parameters, key, *next(around), none)
        parameters[0].block_until_ready()

    if mode == "equal":
        for _ in range(EQUAL_STEPS):
            step()
        np.save(folder / f"end-{method}.npy", np.concatenate([np.asarray(one).ravel() for one in parameters]))
        return
    measure(step, int(steps))


if __name__ == "__main__":
    main()
