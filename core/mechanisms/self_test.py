"""The start-up self-test: fresh and forked processes must draw different noise, and compiled kernels what NumPy draws.

By hand: ``python -m core.mechanisms.self_test`` prints what one process draws, and what a fork of it then draws.

A broken system source, a process image restored twice, or a fork that goes on with its parent's key would give two
trainers the same noise, and their difference would be the records' own.

Kernels that compute something else than NumPy are of a broken compiler, disk or processor. A worker that has them
does not start: going on without them would hide it, and the same machine would then compute all the rest.
"""

import os
import subprocess
import sys
from ctypes import CDLL
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.base.errors import ensure
from core.mechanisms.gaussian import DiscreteGaussian, noise_vector
from core.mechanisms.generator import Generator, SystemGenerator
from core.mechanisms.lattice import vector_grid
from core.mechanisms.sampling import kernels_of, list_by, padded_length, rate_parts
from core.mechanisms.telling import tell_noised, tell_open
from core.native.library import address, library
from core.native.signatures import (
    DIFFERENCE,
    DRAW,
    MARGINS,
    OUTER,
    ROUND,
    SINGLE_MARGINS,
    SINGLE_SUM,
    SQUARES,
    SUM,
    TELL,
    TELL_OPEN,
    TRUNCATE,
)
from core.privacy.facts import Adjacency

PARAMETER: Final = 5.0e6
DRAWS: Final = 8
FRESH: Final = 2
LINES: Final = 3
"""Of each: its own, and after a fork one each."""

MANY: Final = 2**14 + 3
COMPARED: Final = (0.7, 300.0, 4.0e3, 5.0e6, 1.0e12)
"""Parameters whose draws are compared: narrow ones, and wide ones by first bits of 32 and of 64."""

WORDS: Final = 2**16
"""Enough for as many draws of each law as are compared."""

LISTED_RATE: Final = 0.02
LISTED_UNITS: Final = 20_003
ROWS, WIDTH = 75, 29
"""Of the rows that are summed; with a rest after each of the numbers that kernels take at a time."""

_PATIENCE_SECONDS: Final = 60


def noise_line(generator: SystemGenerator) -> str:
    """Draw a little noise and write it as one line; it noises nothing."""
    return " ".join(map(str, noise_vector(generator, PARAMETER, DRAWS).tolist()))


def tell_noise() -> None:
    """Print what this process draws, and what a fork of it draws from the same generator afterwards."""
    generator = SystemGenerator()
    _say(noise_line(generator))
    forked = os.fork()
    _say(noise_line(generator))
    if not forked:
        os._exit(0)  # the clean-up is the parent's
    os.waitpid(forked, 0)


def _say(line: str) -> None:
    """Print a line in one piece: two processes do at a time."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def distinct(lines: list[str]) -> bool:
    """Say whether every line holds DRAWS integers and no two lines are equal."""
    return len(set(lines)) == len(lines) and all(len(line.split()) == DRAWS for line in lines)


class _Same(Generator):
    """Words to be read again."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words = words

    def bits(self, count: int) -> NDArray[np.uint64]:
        drawn, self._words = self._words[:count], self._words[count:]
        ensure(drawn.size == count, "there are words for all draws")
        return drawn


def kernels_agree() -> bool:
    """Say whether each compiled kernel gives what NumPy gives for the same fresh words, some thousands of them."""
    found, _ = library()
    if found is None:
        return True
    words = SystemGenerator().bits(WORDS)
    several = (_draws_agree, _sums_agree, _parts_agree, _open_sums_agree, _lists_agree, _rows_agree)
    return all(agree(found, words) for agree in several)


def _draws_agree(found: CDLL, words: NDArray[np.uint64]) -> bool:
    """Compare draws of narrow laws and of wide ones."""
    pairs = []
    for parameter in COMPARED:
        law = DiscreteGaussian(parameter)
        for kernels in (found, None):
            law.draws.use(DRAW.of(kernels))
            pairs.append(law.draw(_Same(words), MANY))
    return all(map(np.array_equal, pairs[::2], pairs[1::2]))


def _sums_agree(found: CDLL, words: NDArray[np.uint64]) -> bool:
    """Compare the noised values of sums of all sizes, in both precisions."""
    totals = words[:MANY].view(np.int64) >> (words[MANY : 2 * MANY] % np.uint64(62) + np.uint64(2)).astype(np.int64)
    noise = words[2 * MANY : 3 * MANY].view(np.int64) >> 30
    noise[MANY // 2 :] <<= 29  # too large for doubles that are made many at a time
    answered = []
    for kernel in (TELL.of(found), None):
        into = np.empty(MANY), np.empty(MANY, dtype=np.float32)
        for one in into:
            tell_noised(totals, [(0, noise)], vector_grid(1.0, 2**20, 9, Adjacency.ZERO_OUT), 1 / 3, one, kernel)
        answered.append([one.tobytes() for one in into])
    return answered[0] == answered[1]


def _parts_agree(found: CDLL, words: NDArray[np.uint64]) -> bool:
    """Compare a network's float sums as integers with what NumPy makes of them."""
    truncate = TRUNCATE.of(found)
    assert truncate, "a library has all kernels"
    doubles = np.ldexp(words[:MANY].view(np.int64).astype(np.float64), -(words[MANY : 2 * MANY] % 90).astype(np.int32))
    part, total = doubles.astype(np.float32), np.zeros(MANY, dtype=np.int64)
    within = [truncate(address(part), MANY, by, address(total), 1) for by in (1 / 8, 2.0**-30, np.inf)]
    expected = (part / 8).astype(np.int64) + (part * np.float32(2.0**-30)).astype(np.int64)
    return within == [1, 1, 0] and np.array_equal(total, expected)


def _open_sums_agree(found: CDLL, words: NDArray[np.uint64]) -> bool:
    """Compare the noised values of sums whose last part is floats of many sizes, with parts before it and without."""
    kernel = TELL_OPEN.of(found)
    grid = vector_grid(1.0, 2**20, 9, Adjacency.ZERO_OUT)
    binades = -63 - (words[MANY : 2 * MANY] % 50).astype(np.int32)
    part = np.ldexp(words[:MANY].view(np.int64).astype(np.float64), binades)
    part[MANY // 2 :] *= 2.0**21  # too large for doubles on the way
    part[:DRAWS] = -grid.step / 2 * (1 + np.ldexp(np.arange(-4.0, 4.0), -23))  # around a tie
    single, noise = part.astype(np.float32), words[2 * MANY : 3 * MANY].view(np.int64) >> 40
    integers = (single / np.float32(grid.part_step)).astype(np.int64)
    equal = []
    for before in (None, words[:MANY].view(np.int64) >> 3):
        answered, expected = single.copy(), np.empty(MANY, dtype=np.float32)
        tell_open(answered, before, [(0, noise)], grid, 1 / 3, kernel)
        tell_noised(integers if before is None else integers + before, [(0, noise)], grid, 1 / 3, expected, None)
        equal.append(answered.tobytes() == expected.tobytes())
    return all(equal)


def _lists_agree(found: CDLL, words: NDArray[np.uint64]) -> bool:
    """Compare lists of samples."""
    parts = rate_parts(LISTED_RATE)
    law = (parts, LISTED_UNITS, padded_length(parts, LISTED_UNITS))
    one, other = (list_by(kernels, _Same(words), *law) for kernels in (kernels_of(found), None))
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def _rows_agree(found: CDLL, words: NDArray[np.uint64]) -> bool:
    """Compare sums over rows of small integers, which are exact in every order and in single precision too."""
    margins, total, single_margins, single_total = (one.of(found) for one in (MARGINS, SUM, SINGLE_MARGINS, SINGLE_SUM))
    squares, outer, rounded, difference = (one.of(found) for one in (SQUARES, OUTER, ROUND, DIFFERENCE))
    assert difference, "a library has all kernels"
    assert squares, "a library has all kernels"
    assert outer, "a library has all kernels"
    assert rounded, "a library has all kernels"
    assert margins, "a library has all kernels"
    assert total, "a library has all kernels"
    assert single_margins, "a library has all kernels"
    assert single_total, "a library has all kernels"
    small = (words[: ROWS * WIDTH + WIDTH + ROWS] % np.uint64(7)).astype(np.float64) - 3
    x, theta, score = small[: ROWS * WIDTH].reshape(ROWS, WIDTH), small[-WIDTH - ROWS : -ROWS], small[-ROWS:]
    ones, limit, margin, target = np.ones(ROWS), np.full(ROWS, 2.0), np.empty(ROWS), np.empty(ROWS)
    first = -(-WIDTH // 2)
    table = np.ones((ROWS, first + 3))
    table.view(np.float32)[:, :WIDTH] = x
    at, part, sums = np.empty(WIDTH, np.float32), np.empty(WIDTH, np.float32), np.zeros((2, WIDTH), np.int64)
    into, numbers = address(margin), score.copy()
    whole = (address(x), ROWS, WIDTH)
    margins(*whole, 1, address(theta), into)
    right = np.array_equal(margin, x @ theta)
    added = np.zeros(WIDTH)
    total(*whole, address(numbers), into, address(ones), address(limit), None, address(added), None, 0)
    unrounded = rounded(address(added), WIDTH, 1.0, address(sums))
    right &= not unrounded and not added.any()
    stride = -(-WIDTH // 8) * 8
    room, square = np.zeros((64, stride)), np.zeros((stride, stride))
    beside = (into, address(ones), address(ones), None)
    numbers = score.copy()
    outer(*whole, stride, address(numbers), *beside, 2.0, 0, address(room), address(square), None, 0)
    factors = np.clip(score, -2, 2)
    right &= np.array_equal(np.triu(square[:WIDTH, :WIDTH]), np.triu(x.T @ (x * factors[:, None])))
    scores, changed = np.concatenate((score, score[::-1])), np.zeros(WIDTH)
    change = np.clip(np.clip(score[::-1], -2, 2) - np.clip(score, -2, 2), -3, 3)
    both = np.concatenate((margin, margin))
    beside = (address(both), address(ones), address(ones), None)
    difference(*whole, address(scores), *beside, 2.0, 3.0, address(changed), None, 0)
    right &= np.array_equal(changed, change @ x)
    rows = (address(table), table.shape[1], WIDTH, first)
    counted = np.arange(ROWS) % 3 > 0
    for some in (counted, ones > 0):
        among = address(some.view(np.uint8))
        wrong = single_margins(*rows, ROWS, None, among, ROWS, address(theta), address(at), into, address(target))
        right &= not wrong and np.array_equal(margin, x @ theta * some) and np.array_equal(target, ones * some)
    floats, measured = x.astype(np.float32), np.empty(ROWS)
    squares(address(floats), ROWS, WIDTH, address(measured))
    right &= np.array_equal(measured, (x * x).sum(1))
    limits = (2.0, np.inf, 1.0, np.inf)
    wrong |= single_total(*rows, None, ROWS, address(score), into, None, *limits, address(part), address(sums[1:]))
    return right and not wrong and bool((sums == np.clip(score, -2, 2) @ x).all())


def self_test() -> str:
    """Check that fresh processes, forks of them and this one draw different noise, and kernels agree with NumPy.

    Takes about half a second. Equal lines by chance have probability below 2^-180.

    Returns:
        Text for the operator about the kernels.

    Raises:
        PrivacyInvariantError: they do not; the worker must not start.
        CalledProcessError, TimeoutExpired: a fresh process could not draw at all.
    """
    # A fresh process must find this module, however this one was started.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "core.mechanisms.self_test"]
    lines = [noise_line(SystemGenerator())]
    for _ in range(FRESH):
        child = subprocess.run(  # noqa: S603 - our own module
            command, env=environment, stdout=subprocess.PIPE, text=True, timeout=_PATIENCE_SECONDS, check=True
        )
        answered = child.stdout.splitlines()
        ensure(len(answered) == LINES, "a fresh process, and a fork of it, say what they draw")
        lines += answered
    ensure(distinct(lines), "fresh processes draw the same noise: the system's source of randomness is broken")
    ensure(kernels_agree(), "compiled kernels give other numbers than NumPy: build them anew, or remove the library")
    return library()[1]


if __name__ == "__main__":  # pragma: no cover - runs in the fresh processes
    tell_noise()
