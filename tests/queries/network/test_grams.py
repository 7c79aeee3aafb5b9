"""Ghost norms of layers met at places: measured from above, summed within what is charged, chosen by shapes alone.

Networks of tests are too small for this form, so `everywhere` has every layer take it that a record meets at places.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import sqrt
from time import process_time

import pytest
import torch
from torch import Tensor

from core.mechanisms.lattice import CHARGED_MARGIN, SINGLE_ROUNDOFF, round_parts
from core.models.network.layers import Activation, Attention, Conv2d, Linear, MeanOver
from core.oracle.noise import grid_for
from core.privacy.facts import Adjacency
from core.queries.gradients import Gradient, GradientDifference
from core.queries.sums.network import grams
from core.queries.sums.network.grams import GramTerms, grams_cost_less, squares_from_above
from core.queries.sums.network.pass_sizes import micro_rows, numbers_of
from core.queries.sums.network.problem import NetworkProblem
from core.queries.sums.network.terms import RowTerms
from tests.support.networks import NETWORKS, clipped_sum, facts, gradients, problem, records

UNITS, PART, CLIP, ROW = 21, 8, 0.7, 13
QUESTION = Gradient(sigma=1.0, clip=CLIP)
MET = ("convolution", "pools", "sequence", "transformer", "attention", "adapters")
"""Networks with layers that a record meets at places."""


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> list[GramTerms]:
    """Have every such layer take this form; return the terms that were made."""
    made: list[GramTerms] = []
    genuine = GramTerms.__init__

    def noted(self: GramTerms, offset: int, inputs: Tensor, slopes: Tensor) -> None:
        genuine(self, offset, inputs, slopes)
        made.append(self)

    monkeypatch.setattr(GramTerms, "__init__", noted)
    monkeypatch.setattr("core.queries.sums.network.modules.grams_cost_less", lambda *_: True)
    return made


def _theta(held: NetworkProblem) -> Tensor:
    return 0.1 * torch.randn(held.dimension, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def _parts(held: NetworkProblem) -> list[Tensor]:
    public = facts(held.units, held.dimension, CLIP, PART)
    return [part.clone() for part in held._parts(QUESTION, public, _theta(held), None, None)]


@pytest.mark.parametrize("name", MET)
@pytest.mark.parametrize("share", [0.3, 100.0])
def test_clipped_sums_are_those_of_every_records_own_gradient(
    name: str, share: float, everywhere: list[GramTerms]
) -> None:
    held = problem(NETWORKS[name], UNITS, torch.float64)
    theta = _theta(held)
    rows = gradients(held, theta)
    clip = share * float(torch.linalg.vector_norm(rows, dim=-1).median())
    found = held.bounded_sum(Gradient(sigma=1.0, clip=clip), facts(UNITS, held.dimension, clip), theta)
    expected = clipped_sum(rows, clip)
    assert everywhere, "some layer took this form"
    assert torch.allclose(found, expected, rtol=1e-7, atol=1e-7 * float(expected.abs().max()))


def _changed(kind: str, held: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return a neighbour of records: one of them zeroed, or another."""
    features, target, present = (one.clone() for one in held)
    whole = not features.dtype.is_floating_point
    match kind:
        case "zeroed":
            present[ROW] = False
        case "infinite":
            features[ROW] = 10**6 if whole else torch.inf
        case "huge":
            features[ROW] = features[ROW].flip(0) if whole else features[ROW] * 1e30
    return features, target, present


@pytest.mark.parametrize("name", MET)
@pytest.mark.parametrize("kind", ["zeroed", "infinite", "huge"])
def test_neighbours_differ_in_one_part_and_by_no_more_than_is_charged(
    name: str, kind: str, everywhere: list[GramTerms]
) -> None:
    base = records(NETWORKS[name], UNITS)
    pair = [problem(NETWORKS[name], UNITS, held=held, micro=4) for held in (base, _changed(kind, base))]
    for number, (before, after) in enumerate(zip(*map(_parts, pair), strict=True)):
        assert torch.equal(before, after) or number == ROW // PART, "other parts are the same, bit by bit"
    adjacency = Adjacency.REPLACE_ONE if kind == "huge" else Adjacency.ZERO_OUT
    public = facts(UNITS, pair[0].dimension, CLIP, PART, adjacency)
    grid = grid_for(QUESTION, public, UNITS)
    one, other = (held.integer_sum(QUESTION, public, _theta(held), grid.part_step).numpy() for held in pair)
    moved = round_parts(one, grid) - round_parts(other, grid)
    assert float((moved.astype(float) ** 2).sum()) <= grid.sensitivity**2
    assert everywhere


@pytest.mark.parametrize("name", ["transformer", "pools"])
def test_changes_of_gradients_are_those_of_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    question = GradientDifference(sigma=1.0, cap=0.2, clip=CLIP)
    found = []
    for chosen in (False, True):
        monkeypatch.setattr("core.queries.sums.network.modules.grams_cost_less", lambda *_, chosen=chosen: chosen)
        held = problem(NETWORKS[name], UNITS)
        theta = _theta(held)
        public = facts(UNITS, held.dimension, CLIP, PART)
        found.append(held.bounded_sum(question, public, theta, other=theta * 1.5))
    rows, products = found
    assert torch.allclose(rows, products, rtol=0, atol=1e-5)
    assert float(rows.abs().max()) > 1e-3, "they did change"


Record = tuple[Tensor, Tensor]


def _cancelling() -> Record:
    """Return a record whose places cancel to the last bit, 7 (2^24 - 1)^2 - 7 (2^24 - 2) 2^24 = 7."""
    a, b = torch.zeros(1, 14, 3), torch.zeros(1, 14, 2)
    a[0, ::2, 0], b[0, ::2, 1] = 2.0**24 - 1, 2.0**24 - 1
    a[0, 1::2, 0], b[0, 1::2, 1] = 2.0**24 - 2, -(2.0**24)
    a[..., 1], b[..., 0] = 2.0**-9, 2.0**-9
    return a, b


def _nearly_cancelling(seed: int) -> Record:
    """Return a record whose gradient is far shorter than its places' together."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(1, 1, 9, generator=generator) + 10.0**-seed * torch.randn(1, 5, 9, generator=generator)
    b = torch.randn(1, 5, 7, generator=generator)
    return a, b - b.mean(1, keepdim=True)


def _plain(seed: int) -> Record:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, 5, 9, generator=generator), torch.randn(1, 5, 7, generator=generator)


RECORDS: dict[str, Record] = {
    "cancelling": _cancelling(),
    **{f"nearly {seed}": _nearly_cancelling(seed) for seed in range(6)},
    **{f"plain {seed}": _plain(seed) for seed in range(2)},
}


def _exact(record: Record, weight: float = 1.0) -> list[Fraction]:
    """Return the weighted gradient of a record, one number after the other."""
    (a,), (b,) = record
    rows = (
        [[Fraction(one) for one in row] for row in a.tolist()],
        [[Fraction(one) for one in row] for row in b.tolist()],
    )
    numbers = range(b.shape[1]), range(a.shape[1])
    each = list(zip(*rows, strict=True))
    return [Fraction(weight) * sum(t[k] * s[j] for t, s in each) for j in numbers[0] for k in numbers[1]]


def _apart(record: Record) -> Fraction:
    """Return A^2 from below, within 2^-40: the sum of the places' lengths, squared."""
    (a,), (b,) = (one.double() for one in record)
    lengths = float((a.square().sum(-1) * b.square().sum(-1)).sqrt().sum())
    return Fraction(lengths * (1 - 2.0**-41)) ** 2


def _is_from_above(record: Record) -> bool:
    """Say whether the measure is between the two bounds that the proof gives."""
    measured = Fraction(float(GramTerms(0, *record).squares))
    square, apart = sum(one * one for one in _exact(record)), _apart(record)
    return square + apart / 2**33 <= measured <= square + apart / 2**31 * (1 + Fraction(1, 2**30))


def _is_within_charge(record: Record) -> bool:
    """Say whether a record's sum errs by no more than is charged for a part of it alone, and moves it by no more."""
    terms = GramTerms(0, *record)
    weight = (CLIP / terms.squares.sqrt()).clamp(max=1.0).float()
    width = record[0].shape[-1] * record[1].shape[-1]
    total = torch.zeros(width)
    terms.add(total, weight, torch.tensor([True]), slice(0, 1))
    exact = _exact(record, float(weight))
    error = sqrt(sum((Fraction(one) - other) ** 2 for one, other in zip(total.tolist(), exact, strict=True)))
    length = sqrt(sum(one * one for one in exact))
    charged = 3 * SINGLE_ROUNDOFF / (1 - 3 * SINGLE_ROUNDOFF) * CLIP * CHARGED_MARGIN
    return length <= CLIP * (1 + 2.0**-12) and error <= charged


@pytest.mark.parametrize("name", RECORDS)
def test_norms_are_measured_from_above_and_sums_err_within_the_charge(name: str) -> None:
    assert _is_from_above(RECORDS[name])
    assert _is_within_charge(RECORDS[name])


def test_records_that_cancel_are_clipped_by_their_places_and_others_by_their_gradients() -> None:
    (plain,), exact = GramTerms(0, *RECORDS["plain 0"]).squares, sum(one * one for one in _exact(RECORDS["plain 0"]))
    assert float(plain) == pytest.approx(float(exact), rel=1e-8)
    (cancelling,) = GramTerms(0, *RECORDS["cancelling"]).squares
    exact = sum(one * one for one in _exact(RECORDS["cancelling"]))
    assert float(cancelling) > 1e6 * float(exact)


def _single(inputs: Tensor, slopes: Tensor) -> Tensor:
    """Return the measure in single precision."""
    return squares_from_above(inputs.float(), slopes.float()).double()


def _trusted(inputs: Tensor, slopes: Tensor) -> Tensor:
    """Return the squared norm alone, as exactly as a product in double precision makes it."""
    return (slopes.mT @ inputs).square().sum((1, 2))


def _added_in_single(self: GramTerms, total: Tensor, weights: Tensor, _: Tensor, rows: slice) -> None:
    """Add the sum over places in single precision; all records are kept."""
    slopes = (self._slopes[rows] * weights.view(-1, 1, 1)).flatten(0, 1)
    total += (slopes.mT @ self._inputs[rows].flatten(0, 1)).flatten()


@pytest.mark.parametrize(
    ("bug", "target", "planted", "seen"),
    [
        ("norm in single precision", "squares_from_above", _single, _is_from_above),
        ("not from above", "ABOVE", 0.0, _is_from_above),
        ("no bound on places", "squares_from_above", _trusted, _is_within_charge),
        ("sum in single precision", "GramTerms.add", _added_in_single, _is_within_charge),
    ],
)
def test_planted_bugs_are_seen(
    bug: str, target: str, planted: object, seen: Callable[[Record], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"core.queries.sums.network.grams.{target}", planted)
    assert not all(seen(one) for one in RECORDS.values()), bug


def test_products_run_over_whole_records_and_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, slopes = (torch.randn(9, 5, size, generator=torch.Generator().manual_seed(size)) for size in (7, 6))
    weights, kept = torch.rand(9), torch.arange(9) != 4
    expected = torch.einsum("i,itu,itd->ud", weights * kept, slopes, inputs).flatten()
    for places, tile, doubled in ((1024, 2**16, 2**18), (10, 14, 70), (5, 1, 1)):
        for name, value in (("PLACES", places), ("TILE", tile), ("DOUBLED", doubled)):
            monkeypatch.setattr(grams, name, value)
        total = torch.zeros(42)
        terms = GramTerms(0, inputs, slopes)
        terms.add(total, weights * kept, kept, slice(0, 9))
        assert torch.allclose(total, expected, atol=1e-5)
        assert torch.allclose(terms.squares, _trusted(inputs.double(), slopes.double()), rtol=1e-6)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, 3e38])
def test_records_that_do_not_count_leave_nothing(wrong: float) -> None:
    inputs, slopes = torch.full((2, 3, 4), wrong), torch.ones(2, 3, 5)
    inputs[1] = 1.0
    terms, total = GramTerms(0, inputs, slopes), torch.zeros(20)
    assert not float(terms.squares[0]) <= 2.0**80
    terms.add(total, torch.tensor([0.0, 0.5]), torch.tensor([False, True]), slice(0, 2))
    assert torch.equal(total, torch.full((20,), 1.5))


def test_layers_choose_by_their_shapes_and_keep_rows_where_they_did_well() -> None:
    wide = [grams_cost_less(places, 512, 1024) for places in (1, 8, 16, 32, 64, 512)]
    assert wide == [True, True, True, False, False, False]
    assert not grams_cost_less(32, 64, 192), "the block of the benchmarks"
    assert not grams_cost_less(25, 16 * 4 * 4, 32), "a small network's convolution"
    assert grams_cost_less(9, 256 * 9, 128), "and a deep one's"
    assert not grams_cost_less(2, 65_536, 65_536 * 4), "the measure's roundings are counted"


def test_passes_are_of_more_records_where_no_rows_are_made() -> None:
    block = (Attention(heads=8), Linear(units=1024), Activation(), Linear(units=512), MeanOver(), Linear(units=2))
    few, many = (micro_rows(128, numbers_of(block, (places, 512))) for places in (16, 64))
    assert (few, many) == (64, 4)
    assert numbers_of((Conv2d(channels=128, kernel=3, padding=1),), (256, 3, 3)) < 128 * 256 * 9 / 2


def _seconds(act: Callable[[], object]) -> float:
    began = process_time()
    act()
    return process_time() - began


@pytest.mark.timing  # some seconds of products of wide layers, timed one beside the other
@pytest.mark.parametrize(("places", "inputs", "units"), [(4, 512, 1024), (8, 1024, 512), (64, 512, 512), (32, 64, 192)])
def test_the_cheaper_form_takes_less_time_where_costs_are_far_apart(places: int, inputs: int, units: int) -> None:
    count = 2**22 // (inputs * units)  # as many rows as a pass has room for
    given, sloped = torch.randn(count, places, inputs), torch.randn(count, places, units)
    total, weights, kept = torch.zeros(inputs * units), torch.ones(count), torch.ones(count, dtype=torch.bool)

    def act(make: Callable[[], GramTerms | RowTerms]) -> None:
        make().add(total, weights, kept, slice(0, count))

    forms = (
        partial(act, lambda: RowTerms(0, (sloped.mT @ given).flatten(1))),
        partial(act, lambda: GramTerms(0, given, sloped)),
    )
    rounds = [[_seconds(form) for form in forms] for _ in range(15)]
    rows, gram = (min(one) for one in zip(*rounds, strict=True))
    assert (gram < rows) == grams_cost_less(places, inputs, units)
