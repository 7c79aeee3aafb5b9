"""Where random bits come from: the system for private records, a seed for synthetic ones.

The two are distinct final types. A oracle over a scope's records asks `require_system`, so that a seed can never reach
them: with a known seed the noise could be subtracted again.

Source: AES in counter mode as a pseudo-random generator (NIST SP 800-38A and 800-90A). It guards against what has gone
wrong elsewhere: forked children with equal noise, seeds of 32 bits, generator state in checkpoints.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, NoReturn, SupportsIndex, TypeVar, final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from core.base.errors import ensure

if TYPE_CHECKING:
    from torch import Tensor

KEY_BYTES: Final = 32
BLOCK_BYTES: Final = 16
WORD_BYTES: Final = 8
ROOM_BEHIND: Final = BLOCK_BYTES // WORD_BYTES
"""Words of room behind those that are asked for."""

SEEDS: Final = 2**32
MOST_AHEAD: Final = 2**13
"""Integers of one law that are drawn at a time: 64 KB."""

LAWS_AHEAD: Final = 8
_ZEROS: Final = memoryview(bytes(2**18))
"""Zeros that the stream is added to for most requests, so that none are filled anew."""

_NONE: Final = np.empty(0, dtype=np.int64)

T = TypeVar("T")


class _Forks:
    """Number of forks of this process image; a child counts one more than its parent."""

    count = 0

    @classmethod
    def one_more(cls) -> None:
        """Note a fork, in the child."""
        cls.count += 1


os.register_at_fork(after_in_child=_Forks.one_more)


class Generator(ABC):
    """A source of independent uniform bits. One thread at a time."""

    __slots__ = ()

    @abstractmethod
    def bits(self, count: int) -> NDArray[np.uint64]:
        """Return `count` independent uniform 64-bit words, shape (count,)."""

    def bits_in(self, room: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
        """Return the same, maybe in a room that is used again and again: nothing long is allocated for each chunk.

        Args:
            room: its own memory, shape (ROOM_BEHIND + count or more,); its content may be overwritten.
            count: of words.
        """
        del room  # a generator that has words somewhere gives those
        return self.bits(count)


@final
class SystemGenerator(Generator):
    """AES-256 in counter mode, keyed by the operating system; make one per job.

    It takes no seed, tells no state, and cannot be copied or pickled. A forked child draws a fresh key before its
    first word: it is recognised by its process id and by a fork counter, so that a re-used id does not fool it.
    """

    __slots__ = ("__ahead", "__identity", "__stream", "__waiting")

    def __init__(self) -> None:
        self.rekey()

    def rekey(self) -> None:
        """Start a new stream under 32 fresh bytes from the system, and drop all that was drawn ahead.

        A captured earlier state reveals nothing about later draws. A job calls this at each payment (`core.training`).
        The dropped draws were never used, and the reason for dropping them does not depend on any draw, so their
        replacements have the same law.
        """
        cipher = Cipher(algorithms.AES(os.urandom(KEY_BYTES)), modes.CTR(os.urandom(BLOCK_BYTES)))
        self.__stream: CipherContext = cipher.encryptor()
        self.__identity = (os.getpid(), _Forks.count)
        self.__ahead: dict[float, tuple[NDArray[np.int64], int]] = {}
        self.__waiting: dict[Hashable, list[Any]] = {}

    def bits(self, count: int) -> NDArray[np.uint64]:
        """Return `count` words that no other generator, job or process draws, shape (count,)."""
        ensure(count >= 0, "a count of words is not negative")
        if self.__identity != (os.getpid(), _Forks.count):
            self.rekey()
        size = WORD_BYTES * count
        zeros = _ZEROS[:size] if size <= len(_ZEROS) else bytes(size)
        return np.frombuffer(self.__stream.update(zeros), dtype=np.uint64)

    def bits_in(self, room: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
        """Return `count` words as `bits` does, in a room that the caller keeps."""
        size = WORD_BYTES * count
        if size > len(_ZEROS):
            return self.bits(count)
        ensure(room.size >= count + ROOM_BEHIND, "a cipher asks for room for a block more")
        if self.__identity != (os.getpid(), _Forks.count):
            self.rekey()
        written = self.__stream.update_into(_ZEROS[:size], room.view(np.uint8).data)
        ensure(written == size, "a stream is as long as what it is added to")
        return room[:count]

    def ahead(self, law: float, size: int, draw: Callable[[int], NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return `size` fresh integers of a law, of which more are drawn at a time, twice as many each time.

        No integer is returned twice. No checkpoint has draws made ahead, since a generator can be neither copied nor
        stored. A forked child drops them with its parent's key. Some laws are kept; one that is forgotten takes with it
        what was drawn of it.

        Args:
            law: tells laws apart.
            size: number of integers.
            draw: returns as many independent draws of the law as it is asked for, from this generator.
        """
        if self.__identity != (os.getpid(), _Forks.count):
            self.rekey()
        drawn, used = self.__ahead.get(law, (_NONE, 0))
        if used + size > len(drawn):
            if law not in self.__ahead and len(self.__ahead) == LAWS_AHEAD:
                del self.__ahead[next(iter(self.__ahead))]
            drawn, used = draw(max(size, min(2 * len(drawn), MOST_AHEAD))), 0
        self.__ahead[law] = (drawn, used + size)
        return drawn[used : used + size]

    def next_of(self, law: Hashable, draw: Callable[[], list[T]]) -> T:
        """Return a fresh draw of a law, of which several are made at a time: one after the other takes less time.

        As with `ahead`, no draw is returned twice, stored or inherited.

        Args:
            law: tells laws apart.
            draw: returns independent draws of it from this generator, one at least.
        """
        if self.__identity != (os.getpid(), _Forks.count):
            self.rekey()
        waiting = self.__waiting.get(law)
        if not waiting:
            if law not in self.__waiting and len(self.__waiting) == LAWS_AHEAD:
                del self.__waiting[next(iter(self.__waiting))]
            waiting = self.__waiting[law] = draw()
        drawn: T = waiting.pop(0)
        return drawn

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        """Refuse: a copy would draw the same noise twice, and a stored one would give it away."""
        raise TypeError("a generator for private records can be neither copied nor stored")

    def __copy__(self) -> NoReturn:
        self.__reduce_ex__(2)

    def __deepcopy__(self, memo: dict[int, object]) -> NoReturn:
        self.__reduce_ex__(2)

    def __repr__(self) -> str:
        return "SystemGenerator()"


@final
class SimulationGenerator(Generator):
    """Repeatable bits and fast float noise for synthetic data only; no oracle over a scope accepts it.

    Args:
        seed: in [0, 2**32), all that the float generator underneath keeps.
    """

    __slots__ = ("_floats", "_words", "seed")

    def __init__(self, seed: int) -> None:
        ensure(0 <= seed < SEEDS, "a seed is in [0, 2**32)")
        import torch  # noqa: PLC0415 - only simulations need it; a job's fresh process shall not wait for it here

        self.seed = seed
        self._words = np.random.PCG64(seed)  # noqa: TID251 - this is the one module that may
        self._floats = torch.Generator().manual_seed(seed)

    def bits(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words of the seed's stream, shape (count,)."""
        ensure(count >= 0, "a count of words is not negative")
        return np.asarray(self._words.random_raw(count), dtype=np.uint64)

    def normal(self, *shape: int) -> "Tensor":
        """Return independent standard normal draws, float64, of the given shape.

        Continuous, not discrete: for studies on synthetic data, where no privacy hangs on the last bits.
        """
        import torch  # noqa: PLC0415 - as above

        return torch.randn(  # noqa: TID251 - this is the one module that may
            shape, generator=self._floats, dtype=torch.float64
        )

    def uniform(self, *shape: int) -> "Tensor":
        """Return independent uniform draws in (0, 1], multiples of 2^-53, float64, of the given shape."""
        import torch  # noqa: PLC0415 - as above

        zero_based = torch.rand(  # noqa: TID251 - this is the one module that may
            shape, generator=self._floats, dtype=torch.float64
        )
        return 1 - zero_based


def require_system(generator: Generator) -> SystemGenerator:
    """Return the generator if it may noise private records.

    Raises:
        TypeError: it is not a `SystemGenerator`; a programming error, for no request chooses a generator.
    """
    # No isinstance: a subclass could draw from anywhere.
    if type(generator) is not SystemGenerator:
        raise TypeError(f"private records need a SystemGenerator, not a {type(generator).__name__}")
    return generator
