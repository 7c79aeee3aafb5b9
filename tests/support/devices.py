"""A device for tests: records of problems live on the one that FARTHING_TEST_DEVICE names, and answers come back.

`cuda` is a real GPU. `pretended` needs none: a tensor there holds a tensor of the CPU, so its numbers are real, and
every operation that mixes it with one of the CPU fails as on a GPU. Copies and synchronizations are counted.

Use: `FARTHING_TEST_DEVICE=pretended pytest tests/laws`; a fixture of `tests/conftest.py` enters `problems_on`.
"""

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from core.queries.sums.joint import JointProblem
from core.queries.sums.linear import LinearProblem
from core.queries.sums.multinomial import MultinomialProblem
from core.queries.sums.network.problem import NetworkProblem
from core.queries.sums.table import TableProblem

PRETENDED: Final = "meta"
"""Torch's own device without numbers: code that asks for a tensor's device sees one that is no CPU."""
PROBLEMS: Final = (LinearProblem, JointProblem, MultinomialProblem, TableProblem, NetworkProblem)
_REPLICATED_AXES: Final = 3
_VALUES: Final = frozenset({"_local_scalar_dense", "is_nonzero", "item", "equal", "nonzero", "masked_select"})
"""Operations whose result the host has to wait for."""
_COPIES: Final = frozenset({"_to_copy", "copy_"})


class MixedDevices(RuntimeError):
    """One operation was given tensors of the CPU and of the device."""


class OnDevice(Tensor):
    """A tensor of the pretended device.

    Attributes:
        held: its numbers, on the CPU.
    """

    held: Tensor

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnDevice({self.held!r})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # torch disables it in its own class
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise AssertionError(f"{func} was called on the pretended device where nobody pretends")


def _on_device(held: Tensor) -> OnDevice:
    made: OnDevice = Tensor._make_wrapper_subclass(
        OnDevice,
        held.size(),
        strides=held.stride(),
        storage_offset=held.storage_offset(),
        dtype=held.dtype,
        device=torch.device(PRETENDED),
    )
    made.held = held
    return made


class _Calls(TorchFunctionMode):
    """Makes tensors of Python numbers on the CPU, and copies them: torch would make them without numbers.

    And says where numbers are held: torch would say 0 of all of them.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = dict(kwargs or {})
        if func is Tensor.data_ptr and isinstance(args[0], OnDevice):
            return args[0].held.data_ptr()
        if func is Tensor.new_tensor and isinstance(args[0], OnDevice):
            kwargs = {"dtype": args[0].dtype, "device": args[0].device, **kwargs}
            func, args = torch.tensor, args[1:]
        if func is torch.tensor and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        return func(*args, **kwargs)


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no types here
    """Runs operations of tensors of the pretended device; see `pretending`."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # as above
        self.counts = counts

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        asked = kwargs.get("device")
        given = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
        there = [one for one in given if isinstance(one, OnDevice)]
        here = any(not isinstance(one, OnDevice) and one.ndim > 0 for one in given)
        if there and here and name not in _COPIES:
            raise MixedDevices(f"{func} was given tensors of two devices")
        if name in _VALUES and there:
            self.counts["wait"] += 1
        elif there and not _is_free(func):
            self.counts["launch"] += 1
        goes = bool(there) if asked is None else torch.device(asked).type == PRETENDED
        if name == "copy_":
            goes = isinstance(args[0], OnDevice)
            self._count(bool(there) and isinstance(args[1], OnDevice), goes)
        elif name == "_to_copy":
            self._count(bool(there), goes)
        if asked is not None:
            kwargs["device"] = torch.device("cpu")
        wrappers = {id(one.held): one for one in there}
        plain_args, plain_kwargs = tree_map(_held, args), tree_map(_held, kwargs)
        found = func(*plain_args, **plain_kwargs)
        return tree_map(lambda one: _wrapped(one, wrappers) if goes else one, found)

    def _count(self, was_there: bool, goes: bool) -> None:
        if was_there != goes:
            self.counts["to" if goes else "from"] += 1


def _is_free(func: Any) -> bool:
    """Say whether an operation makes a view of memory, or memory without numbers: nothing is launched for it."""
    returned = func._schema.returns
    return "empty" in func._schema.name or any(one.alias_info and not one.alias_info.is_write for one in returned)


def _held(one: Any) -> Any:
    return one.held if isinstance(one, OnDevice) else one


def _wrapped(one: Any, wrappers: dict[int, OnDevice]) -> Any:
    if not isinstance(one, Tensor) or isinstance(one, OnDevice):
        return one
    return wrappers[id(one)] if id(one) in wrappers else _on_device(one)


def _no_gradients(mode: bool = True) -> AbstractContextManager[Any]:
    return torch.no_grad() if mode else nullcontext()


@contextmanager
def pretending(counts: Counter[str] | None = None) -> Iterator[Counter[str]]:
    """Let tensors be moved to the pretended device, and be used there.

    Args:
        counts: to go on with; None: new ones.

    Yields:
        Counts of "to" (copies to the device), "from" (copies back), "wait" (numbers that the host waits for) and
        "launch" (other operations there).
    """
    counts = Counter() if counts is None else counts
    # A view of a tensor that holds another cannot be made in inference mode.
    with _Calls(), _Operations(counts), patch.object(torch, "inference_mode", _no_gradients):
        yield counts


@contextmanager
def problems_on(name: str) -> Iterator[None]:
    """Put the records of every problem that is made on a device, and bring what it answers back to the CPU.

    Replicates stay on the CPU: a GPU holds one set of records.

    Args:
        name: "cuda" or "pretended".
    """
    device = torch.device({"pretended": PRETENDED}.get(name, name))
    with ExitStack() as undo:
        if name == "pretended":
            undo.enter_context(pretending())
        for kind in PROBLEMS:
            _move(kind, device, undo)
        yield


def _move(kind: Any, device: torch.device, undo: ExitStack) -> None:
    """Have a class of problems move what it is given, and return its answers on the CPU."""

    def to(one: Any) -> Any:
        return one.to(device) if isinstance(one, Tensor) else one

    def back(one: Any) -> Any:
        return one.cpu() if isinstance(one, Tensor) else one

    made = kind.__init__

    @functools.wraps(made)
    def begin(self: Any, features: Tensor, *given: Any, **named: Any) -> None:
        if type(self) is not kind or features.ndim == _REPLICATED_AXES:
            made(self, features, *given, **named)
        else:
            made(self, to(features), *map(to, given), **{key: to(one) for key, one in named.items()})

    replaced = {"__init__": begin}
    for name in ("integer_sum", "bounded_sum"):  # inherited ones too
        replaced[name] = _returning(getattr(kind, name), back)
    if hasattr(kind, "_factors"):  # of which tests ask each record's own numbers
        replaced["_factors"] = _about_points(kind._factors, to, back)
    for name, new in replaced.items():
        undo.enter_context(patch.object(kind, name, new))


def _returning(method: Any, back: Any) -> Any:
    @functools.wraps(method)
    def answered(self: Any, *given: Any, **named: Any) -> Any:
        return back(method(self, *given, **named))

    return answered


def _about_points(factors: Any, to: Any, back: Any) -> Any:
    """Have numbers of records on the device, at points on the CPU, come back to the CPU."""

    @functools.wraps(factors)
    def found(self: Any, question: Any, facts: Any, records: Any, at: Any) -> Any:
        if records.features.device == at.theta.device:
            return factors(self, question, facts, records, at)
        made = factors(self, question, facts, records, type(at)(*map(to, at)))
        return type(made)(*map(back, made))

    return found
