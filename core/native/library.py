"""The compiled kernels where they were built, or none: each caller has equivalent NumPy code.

One library is made of all C files of this folder, beside them (`core.native.build`). It carries a digest of the sources
and compiler options. The loader looks for this digest in the file before any of its code runs, and ignores a file built
from other sources or with other options. A process asks once, when it first imports who calls a kernel.

C and its reference must compute the same bits, so that one proof covers both. Floats use the same IEEE operations in
the same order (no compiler contracts or reassociates). Integers do not overflow, and no float is converted to an
integer that cannot hold it. Kernels get addresses: their callers check shapes, types and contiguity. Sums over rows and
squares of their norms are the exception. BLAS and torch add up in an unspecified order, the kernels in one of their
own. The charge for such a sum, or the claim about such a norm, covers any order (`core.queries.sums.rows`,
`core.queries.sums.network.terms`).
"""

import ctypes
import hashlib
import platform
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # a stage that builds has Python alone
    from numpy.typing import NDArray

FOLDER: Final = Path(__file__).parent
FLAGS: Final = (
    "-std=gnu11",
    "-O3",
    "-ffp-contract=off",  # a product and a sum are two roundings, as in NumPy, except where the text fuses them
    "-fno-trapping-math",  # nobody asks which exceptions a float operation raised; its result is the same
    "-fno-strict-aliasing",  # what is told stands where the sum stood
    "-shared",
    "-fPIC",
)
LIBRARIES: Final = ("-lm",)  # behind the sources: `fma`, for processors that have no such instruction
NAME: Final = "kernels.so"
MARK: Final = "farthing-kernels-"

Kernel = Callable[..., int]

ADDRESS: Final = ctypes.c_void_p
INTEGER: Final = ctypes.c_int64
FLOAT: Final = ctypes.c_double


def sources(folder: Path = FOLDER) -> list[Path]:
    """Return the C files of a folder and what they include, in the order of their names."""
    return sorted(folder.glob("*.[ch]"))


def mark(folder: Path = FOLDER) -> str:
    """Return what a library of these sources carries: a digest of them, of the flags, and of the kind of machine."""
    digest = hashlib.sha256("\0".join((*FLAGS, platform.system(), platform.machine())).encode())
    for path in sources(folder):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return MARK + digest.hexdigest()


def opened(folder: Path = FOLDER) -> tuple[ctypes.CDLL | None, str]:
    """Return the library of a folder, if it is there and of these sources, and a text for the operator."""
    path = folder / NAME
    if not path.is_file():
        return None, "none: NumPy does their work, in more time; `python -m core.native.build` makes them"
    if mark(folder).encode() not in path.read_bytes():
        return None, "stale: built from other sources, so NumPy does their work; run `python -m core.native.build`"
    try:
        return ctypes.CDLL(str(path)), "compiled"
    except OSError:
        return None, "foreign: this machine cannot load them, so NumPy does their work"


@lru_cache(maxsize=1)
def library() -> tuple[ctypes.CDLL | None, str]:
    """Return this process's library, or None, and a text for the operator."""
    return opened()


class Signature:
    """A C function: its name, and the types of its arguments. All return an integer.

    Args:
        name: of the function.
        arguments: ADDRESS, INTEGER or FLOAT.
    """

    def __init__(self, name: str, *arguments: type[Any]) -> None:
        self.name, self.arguments = name, arguments

    def of(self, found: ctypes.CDLL | None) -> Kernel | None:
        """Return the function of a library, None where there is none."""
        if found is None:
            return None
        function = getattr(found, self.name)
        function.argtypes, function.restype = self.arguments, INTEGER
        return function  # type: ignore[no-any-return] # ctypes makes functions on demand

    def kernel(self) -> Kernel | None:
        """Return the function of this process's library."""
        return self.of(library()[0])


def address(array: "NDArray[Any]") -> int:
    """Return where an array begins, for a kernel that walks one number after the other."""
    assert array.flags.c_contiguous, "a kernel walks one number after the other"
    assert array.flags.aligned, "numbers stand where their type may; NumPy reads them elsewhere too"
    return int(array.__array_interface__["data"][0])
