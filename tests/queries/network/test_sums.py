"""Sums of networks' clipped gradients: the same law for every way to walk, neighbours apart by what is charged."""

import ctypes
import gc
import os
from collections.abc import Callable
from functools import partial
from math import isqrt, sqrt
from pathlib import Path

import pytest
import torch
from torch import Tensor

import benchmarks.gpu
from core.mechanisms.lattice import CHARGED_MARGIN, Grid, deepest_squares, network_grid, round_parts
from core.models.network.layers import Activation, Conv2d, Flatten, Linear, Reshape
from core.oracle.noise import grid_for
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Curvature, Gradient, GradientNorm
from core.queries.sums.network.kernels import repeatable
from core.queries.sums.network.pass_sizes import MICRO_NUMBERS, micro_rows
from core.queries.sums.network.problem import NetworkProblem
from core.queries.sums.network.terms import LARGEST, OuterTerms
from tests.support.networks import NETWORKS, clipped_sum, facts, gradients, problem, records

UNITS = 43
PART = 8
CLIP = 0.5
QUESTION = Gradient(sigma=1.0, clip=CLIP)
KINDS = ("perceptron", "pools", "norms", "transformer", "adapters")
"""Of networks: outer products, rows, tokens, and several of them."""

BENCHED = {name: (*one, "cross_entropy", "all") for name, one in benchmarks.gpu.NETWORKS.items()}

OVERFLOWING = ("perceptron", "pools", "sequence")


def _theta(held: NetworkProblem, size: float = 0.1) -> Tensor:
    generator = torch.Generator().manual_seed(9)
    return size * torch.randn(held.dimension, generator=generator, dtype=torch.float64)


def _public(held: NetworkProblem, adjacency: Adjacency = Adjacency.ZERO_OUT) -> tuple[Facts, Grid]:
    known = facts(held.units, held.dimension, CLIP, PART, adjacency)
    return known, grid_for(QUESTION, known, held.units)


def _integers(held: NetworkProblem, **selection: Tensor) -> Tensor:
    known, grid = _public(held)
    return held.integer_sum(QUESTION, known, _theta(held), grid.part_step, **selection)


def _parts(held: NetworkProblem) -> list[Tensor]:
    """Return every part's float sum."""
    known, _ = _public(held)
    return [part.clone() for part in held._parts(QUESTION, known, _theta(held), None, None)]


def _norm(steps: Tensor) -> int:
    return isqrt(sum(one * one for one in steps.tolist()))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("micro", [1, 4, 8, 16, None])
def test_micro_batches_change_nothing_but_roundings_within_the_charged_error(name: str, micro: int | None) -> None:
    held = problem(NETWORKS[name], UNITS, micro=micro)
    _, grid = _public(held)
    single = sum(_integers(held, rows=torch.tensor([row])) for row in range(UNITS))
    assert _norm(_integers(held) - single) * grid.part_step <= 2 * grid.error
    exact = clipped_sum(gradients(problem(NETWORKS[name], UNITS, torch.float64), _theta(held)), CLIP)
    assert float(torch.linalg.vector_norm(_integers(held) * grid.part_step - exact)) < 1e-3 * CLIP * UNITS


@pytest.mark.parametrize("units", [1, 7, 8, 9, 16, 17])
def test_parts_end_where_their_rows_do(units: int) -> None:
    held = problem(NETWORKS["transformer"], units, micro=4)
    assert len(_parts(held)) == -(-units // PART)
    exact = clipped_sum(gradients(problem(NETWORKS["transformer"], units, torch.float64), _theta(held)), CLIP)
    assert torch.allclose(sum(_parts(held)).double(), exact, atol=1e-5)


@pytest.mark.parametrize("units", [1, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("name", ["perceptron", "pools"])
def test_an_open_sum_has_its_last_part_in_floats_and_is_closed_as_the_sum_of_all(name: str, units: int) -> None:
    held = problem(NETWORKS[name], units)
    known, grid = _public(held)
    opened = held.open_sum(QUESTION, known, _theta(held), grid.part_step)
    assert (opened.total is None) == (units <= PART)
    each = [held._arranged((part.double() / grid.part_step).to(torch.int64)) for part in _parts(held)]
    assert torch.equal((opened.part.double() / grid.part_step).to(torch.int64), each[-1])
    if opened.total is not None:
        assert torch.equal(opened.total, sum(each[:-1], torch.zeros_like(each[0])))
    assert torch.equal(opened.closed(), sum(each, torch.zeros_like(each[0])))
    assert torch.equal(_integers(held), sum(each, torch.zeros_like(each[0])))
    assert not _integers(held, rows=torch.arange(0)).any()


def test_rows_and_masks_say_who_is_summed() -> None:
    held = problem(NETWORKS["norms"], UNITS)
    _, grid = _public(held)
    rows = torch.tensor([40, 3, 17, 17, 5, 0])
    included = torch.tensor([True, True, False, True, True, False])
    mask = torch.zeros(UNITS, dtype=torch.bool)
    mask[rows[included]] = True
    one, other = _integers(held, rows=rows, included=included), _integers(held, included=mask)
    assert _norm(one - other) * grid.part_step <= 2 * grid.error
    assert int(one.abs().sum()) > 0


@pytest.mark.parametrize("name", KINDS)
def test_an_empty_sample_sums_to_zero(name: str) -> None:
    held = problem(NETWORKS[name], UNITS)
    nobody = torch.zeros(5, dtype=torch.bool)
    assert not _integers(held, rows=torch.arange(5), included=nobody).any()
    assert not _integers(held, included=torch.zeros(UNITS, dtype=torch.bool)).any()


def _changed(kind: str, held: tuple[Tensor, ...], row: int) -> tuple[Tensor, ...]:
    """Return a neighbour of records: one of them zeroed, or another."""
    features, target, present = (one.clone() for one in held)
    whole = not features.dtype.is_floating_point
    match kind:
        case "zeroed":
            present[row] = False
        case "not a number":
            features[row], target[row] = (-1 if whole else torch.nan), torch.nan
        case "infinite":
            features[row] = 10**6 if whole else torch.inf
        case "huge":
            features[row] = features[row].flip(0) if whole else features[row] * 1e30
        case "outlier":
            features[row] = features[row].flip(0) if whole else features[row] * -30
    return features, target, present


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["zeroed", "not a number", "infinite", "huge", "outlier"])
def test_neighbours_differ_in_one_part_and_by_no_more_than_is_charged(name: str, kind: str) -> None:
    row = 13
    base = records(NETWORKS[name], UNITS)
    one = problem(NETWORKS[name], UNITS, held=base, micro=4)
    other = problem(NETWORKS[name], UNITS, held=_changed(kind, base, row), micro=4)
    for number, (before, after) in enumerate(zip(_parts(one), _parts(other), strict=True)):
        assert torch.equal(before, after) or number == row // PART, "other parts are the same, bit by bit"
    zeroed = kind in ("zeroed", "not a number", "infinite")
    _, grid = _public(one, Adjacency.ZERO_OUT if zeroed else Adjacency.REPLACE_ONE)
    moved = round_parts(_integers(one).numpy(), grid) - round_parts(_integers(other).numpy(), grid)
    assert _norm(torch.from_numpy(moved)) <= grid.sensitivity


@pytest.mark.parametrize("name", [*NETWORKS, *BENCHED])
def test_other_records_floats_are_the_same_whatever_one_record_says(name: str) -> None:
    """On a GPU in a pass of thousands, for which its libraries have kernels of their own."""
    row, units = 3, 2560 if os.environ.get("FARTHING_TEST_DEVICE") == "cuda" else 8
    network = (NETWORKS | BENCHED)[name]
    base, found = records(network, units), list[list[Tensor]]()
    for kind in ("none", "zeroed", "not a number", "infinite", "huge", "outlier"):
        held = problem(network, units, held=_changed(kind, base, row))
        others = (torch.arange(units) != row).to(held._device)
        with repeatable(held._device):
            slots = held._records.some(slice(None), others)
            terms, scales, _ = held._measured(held._weights(_theta(held)), slots, CLIP)
        found.append([scales[others], *(one.squares[others] for one in terms)])
    for floats in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(floats, found[0], strict=True))


def _overflowing(held: NetworkProblem) -> NetworkProblem:
    """Scale a start so that a pass overflows for records that are themselves finite."""
    held._start = {name: at * 1e25 for name, at in held._start.items()}
    return held


@pytest.mark.parametrize("name", OVERFLOWING)
def test_gradients_that_are_not_finite_count_zero(name: str) -> None:
    held = _overflowing(problem(NETWORKS[name], UNITS))
    terms, _, kept = held._measured(held._weights(_theta(held)), held._records.some(slice(8), None), CLIP)
    squares = torch.stack([one.squares for one in terms]).sum(0)
    assert not kept[~(squares <= LARGEST**2)].any()
    assert not kept.all()
    total = _integers(held)
    known, grid = _public(held)
    assert _norm(total) * grid.part_step <= UNITS * CLIP * CHARGED_MARGIN + grid.error
    assert known.units == UNITS


@pytest.mark.parametrize("name", NETWORKS)
def test_all_records_are_read_where_they_stand_and_stay_as_they_are(name: str) -> None:
    """Rows that count as zero, too, of which other layers' outputs are overwritten."""
    held = _overflowing(problem(NETWORKS[name], UNITS)) if name in OVERFLOWING else problem(NETWORKS[name], UNITS)
    before = held._records.features.clone()
    every, counted = torch.arange(UNITS), torch.arange(UNITS) % 3 > 0
    assert torch.equal(_integers(held), _integers(held, rows=every))
    assert torch.equal(_integers(held, included=counted), _integers(held, rows=every, included=counted))
    assert torch.equal(held._records.features, before)


def _adversaries(name: str) -> list[Tensor]:
    """Return sums of one record each, chosen to be as large as they get."""
    found = []
    for seed in range(2):
        base = records(NETWORKS[name], 16, seed)
        for scale in (1.0, 1e3):
            features = base[0] if not base[0].dtype.is_floating_point else base[0] * scale
            held = problem(NETWORKS[name], 16, held=(features, *base[1:]))
            found += [_integers(held, rows=torch.tensor([row])) for row in range(16)]
    return found


@pytest.mark.parametrize("name", ["perceptron", "pools", "transformer"])
def test_no_record_is_found_that_moves_a_sum_by_more_than_is_charged(name: str) -> None:
    held = problem(NETWORKS[name], 16)
    _, grid = _public(held)
    largest = max(_norm(one) for one in _adversaries(name)) * grid.part_step
    assert largest <= (1 + 2**-11) * CLIP, "terms are inside the charged margin"
    assert largest > 0.999 * CLIP, "and the search finds some that reach their clip"
    assert largest / grid.step <= grid.sensitivity


@pytest.mark.parametrize("bug", ["no clip", "clip of the mean", "norm of one tensor", "nan times zero"])
def test_planted_bugs_move_a_sum_by_more_than_is_charged(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, row = "perceptron", 13
    base = records(NETWORKS[name], UNITS)
    kind = "overflowing" if bug == "nan times zero" else "outlier"
    pair = [problem(NETWORKS[name], UNITS, held=held) for held in (base, _changed(kind, base, row))]
    genuine = NetworkProblem._measured

    def measured(self: NetworkProblem, *rest: object) -> tuple[list, Tensor, Tensor]:
        terms, scales, kept = genuine(self, *rest)
        squares = torch.stack([one.squares for one in terms])
        match bug:
            case "no clip":
                scales = torch.ones_like(scales)
            case "clip of the mean":
                scales = torch.full_like(scales, float((CLIP / squares.sum(0).mean().sqrt()).clamp(max=1.0)))
            case "norm of one tensor":
                scales = (CLIP / squares[-1].sqrt()).clamp(max=1.0).float()
        return terms, scales, kept

    monkeypatch.setattr(NetworkProblem, "_measured", measured)
    if bug == "nan times zero":
        monkeypatch.setattr("core.queries.sums.network.terms.selected", lambda rows, kept: rows * kept.unsqueeze(-1))
        with pytest.raises(AssertionError, match="finite"):
            _integers(_overflowing(pair[0]))
        return
    _, grid = _public(pair[0], Adjacency.REPLACE_ONE)
    one, other = (round_parts(_integers(held).numpy(), grid) for held in pair)
    assert _norm(torch.from_numpy(one - other)) > grid.sensitivity


def _depths(leaves: int) -> set[tuple[int, ...]]:
    """Return the leaves' depths of every binary tree, in ascending order."""
    if leaves == 1:
        return {(0,)}
    sides = (
        (one, other) for left in range(1, leaves // 2 + 1) for one in _depths(left) for other in _depths(leaves - left)
    )
    return {tuple(sorted(depth + 1 for depth in (*one, *other))) for one, other in sides}


@pytest.mark.parametrize("leaves", range(1, 11))
def test_no_tree_of_additions_is_deeper_than_one_leaf_after_the_other(leaves: int) -> None:
    trees = _depths(leaves)
    assert len(trees) >= leaves // 2
    assert deepest_squares(leaves) == max(sum((depth + 3) ** 2 for depth in depths) for depths in trees)


@pytest.mark.parametrize("rows", [1, 2, 3, 32, 128, 256, 4096])
def test_one_rounding_more_of_every_term_covers_what_sums_over_places_err(rows: int) -> None:
    """The proof of `core.queries.sums.network.grams`: sqrt(Q_3) is that far above sqrt(Q_2)."""
    of_two = (rows + 1) ** 2 + sum((depth + 2) ** 2 for depth in range(1, rows))
    assert sqrt(deepest_squares(rows)) >= sqrt(of_two) + 0.8 * sqrt(rows)
    assert 2**-41 * 2**16.5 <= 0.8 * 2**-24


def _charged(rows: int) -> float:
    """Return the error that is charged for a part of terms of norm 1, products that underflow aside."""
    most = sum(depth**2 for depth in range(4, rows + 3)) + (rows + 2) ** 2
    return 2.0**-24 / (1 - (rows + 2) * 2.0**-24) * sqrt(rows * most)


@pytest.mark.parametrize("rows", [64, 256])
def test_the_grid_charges_for_two_sums_of_few_terms(rows: int) -> None:
    grid = network_grid(1.0, rows, 60_000, 26_010, Adjacency.ZERO_OUT)
    bound = CHARGED_MARGIN
    least = bound * (1 + 2 * _charged(rows)) / grid.step + sqrt(26_010)
    assert least <= grid.sensitivity <= 1.0001 * least
    assert grid.sensitivity * grid.step < 1.0015 + 2 * 0.6 * rows**2 * 2**-24, "a thousandth of it for the margin"
    longer = network_grid(1.0, rows, 2**32, 26_010, Adjacency.ZERO_OUT)
    assert abs(longer.sensitivity - grid.sensitivity) <= 2**10, "how many parts there are does not enter"
    changed = network_grid(1.0, rows, 60_000, 26_010, Adjacency.REPLACE_ONE)
    assert 1.99 < changed.sensitivity / grid.sensitivity < 2
    short = network_grid(1.0, rows, 10, 26_010, Adjacency.ZERO_OUT)
    assert short.sensitivity == network_grid(1.0, 10, 10, 26_010, Adjacency.ZERO_OUT).sensitivity, "of a short list"


Order = Callable[[Tensor], Tensor]


def _one_by_one(terms: Tensor) -> Tensor:
    total = torch.zeros(terms.shape[1:])
    for one in terms:
        total = total + one
    return total


def _by_halves(terms: Tensor) -> Tensor:
    half = len(terms) // 2
    return terms[0] if half == 0 else _by_halves(terms[:half]) + _by_halves(terms[half:])


@pytest.mark.parametrize("rows", [64, 256])
def test_sums_in_single_precision_err_and_the_charge_covers_them(rows: int) -> None:
    """Terms along one axis, and terms along many, each coordinate adding them up in an order of its own.

    Every partial sum of the first is rounded down by nearly half of its last bit.
    """
    total, made = torch.zeros(()), []
    for _ in range(rows):  # the next term that loses the most beside what is there, of norm 1 at most
        some = 1 - 2.0**-24 * torch.arange(1, 2**10 + 1)
        lost = total.double() + some.double() - (total + some).double()
        made.append(some[lost.argmax()])
        total = total + made[-1]
    along = torch.stack(made).unsqueeze(-1)
    spread = torch.nn.functional.normalize(
        along + torch.rand(rows, 7, generator=torch.Generator().manual_seed(3)), dim=-1
    )
    turned = torch.stack([one.roll(37 * place) for place, one in enumerate(spread.unbind(-1))], -1)
    orders: tuple[Order, ...] = (_one_by_one, lambda terms: _one_by_one(terms.flip(0)), _by_halves)
    errors = [
        float(torch.linalg.vector_norm(order(terms).double() - terms.double().sum(0)))
        for terms in (along, turned)
        for order in orders
    ]
    assert max(errors) <= _charged(rows)
    assert max(errors) > _charged(rows) / 2, "and half of it would not"


def test_a_gradients_norm_is_the_other_question_of_networks() -> None:
    held = problem(NETWORKS["linear"], UNITS)
    known, grid = _public(held)
    asked = GradientNorm(sigma=1.0, clip=CLIP)
    assert grid_for(asked, known, UNITS).sensitivity == grid.sensitivity + 1
    assert torch.equal(held.integer_sum(asked, known, _theta(held), grid.part_step), _integers(held))
    with pytest.raises(AssertionError, match="their changes only"):
        held.integer_sum(Curvature(sigma=1.0, of="hessian"), known, _theta(held), grid.part_step)


def _peak_bytes(work: Callable[[], object]) -> int:
    """Return how far this process's resident memory rises above what it uses, kept by the C library or not."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what tests before this one freed would hide as much of a rise
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    """Return a figure of this process's memory, in bytes."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def test_memory_beside_the_records_is_that_of_a_micro_batch() -> None:
    layers = (Reshape(shape=(1, 12, 12)), Conv2d(channels=64, kernel=7), Activation(), Flatten(), Linear(units=1))
    network, units = (layers, (144,), "squared", "all"), 4096
    rises = []
    for micro in (PART, units):
        held = problem(network, units, micro=micro)
        known, theta = facts(units, held.dimension, CLIP, PART), torch.zeros(held.dimension, dtype=torch.float64)
        step = grid_for(QUESTION, known, units).part_step
        held.integer_sum(QUESTION, known, theta, step, rows=torch.arange(2 * PART))  # libraries are loaded by now
        rises.append(_peak_bytes(partial(held.integer_sum, QUESTION, known, theta, step)))
    rows_bytes = units * 64 * 49 * 4
    assert rises[0] < rows_bytes / 4, "no row outlives its micro-batch"
    assert rises[1] > rows_bytes, "and the measure sees rows that do"


def test_sums_at_many_points_are_those_at_each() -> None:
    held = problem(NETWORKS["pools"], UNITS)
    known, _ = _public(held)
    points = torch.stack([_theta(held), _theta(held, 0.3)])
    found = held.bounded_sum(QUESTION, known, points)
    assert torch.equal(found, torch.stack([held.bounded_sum(QUESTION, known, one) for one in points]))


@pytest.mark.parametrize("part", [1, 48, 64, 300])
def test_passes_tile_parts_or_parts_them_and_fit(part: int) -> None:
    for numbers in (1, 60_000, 10**6, 10**8):
        micro = micro_rows(part, numbers)
        assert part % micro == 0 or micro % part == 0
        assert micro == 1 or micro * numbers <= MICRO_NUMBERS
    assert micro_rows(64, 1) == 256


def test_factors_of_outer_products_hide_nothing_where_squares_underflow() -> None:
    small, large = torch.full((1, 9), 1e-28), torch.full((1, 4), 3e11)
    exact = 36 * (1e-28 * 3e11) ** 2
    for inputs, slopes in ((small, large), (large, small)):
        assert float(OuterTerms(0, inputs, slopes, bias=False).squares) == pytest.approx(exact, rel=1e-6)
    for inputs, slopes in ((small, large * 10), (large * 10, small)):
        assert not OuterTerms(0, inputs, slopes, bias=False).squares.isfinite().any(), "too large a factor counts zero"
