"""The questions of a plan of whitened Newton, and figures of their noise."""

from collections.abc import Iterator
from math import sqrt
from typing import Final

from core.losses.categorical import Logistic, Multinomial
from core.losses.counts import CutPoisson, Poisson
from core.losses.robust import Huber
from core.losses.squares import Squared
from core.methods.base import Plan
from core.methods.m_estimation.whitened_newton import shares as parts
from core.methods.m_estimation.whitened_newton.request import (
    Count,
    DampedSteps,
    Family,
    WeightBound,
    WhitenedSettings,
)
from core.methods.m_estimation.whitened_newton.row_weights import weight_bound_for
from core.methods.m_estimation.whitened_newton.shares import WhitenedShares
from core.models.outlook import RESIDUALS_BEYOND
from core.privacy.arithmetic import Mu
from core.privacy.facts import Adjacency, Facts, Sampling
from core.queries.banded import BandGradients, BandScores, BandTotals
from core.queries.classes import ClassCounts, ClassMoments, class_sums
from core.queries.gradients import Looked
from core.queries.looks import (
    CellCounts,
    FewValues,
    IntegerCounts,
    LinearResidualCounts,
    MagnitudeCounts,
    ProductMagnitudeCounts,
    ResidualMagnitudeCounts,
    SecondMoments,
    ValueCounts,
    WeightSums,
)
from core.queries.reencoded import ReencodedCurvature, ReencodedGradient, widest

WIDEST_BANDS: Final = tuple(float(place + 1) for place in range(parts.MOST_BANDS))
"""In place of learned edges: as many as there may be."""


class WhitenedFigures(WhitenedSettings, Plan):
    """Settings with nothing open, and the method's questions; all of it public."""

    mu: Mu
    damped_steps: DampedSteps
    weight_bound: WeightBound
    loss: Family
    numbers: Count
    two_valued: Count
    few_valued: tuple[FewValues, ...] = ()  # a plan of release 0.1.0 has none: its integers are numbers
    products: Count = 0  # likewise
    trimmed: bool = False  # likewise: its weights count up to their declared bound

    @property
    def steps(self) -> int:
        """All steps, the precise ones among them: both, or of least squares the one."""
        return self.damped_steps + (1 if self.least_squares else 2)

    @property
    def shares(self) -> WhitenedShares:
        """Division of mu^2; without a look of its own, the look's share goes to all others in proportion."""
        own = {
            "poisson": parts.POISSON_SHARES,
            "huber": parts.WEIGHTED_LINEAR_SHARES if self.weighted else parts.LINEAR_SHARES,
            "squared": parts.WEIGHTED_SQUARES_SHARES if self.weighted else parts.SQUARES_SHARES,
        }
        shares = own.get(self.loss.kind, parts.SHARES)
        # The look's share is the tuple's first field.
        return WhitenedShares(0.0, *(share / (1 - shares.look) for share in shares[1:])) if self.looked else shares

    @property
    def least_squares(self) -> bool:
        """True of a model of a mean."""
        return isinstance(self.loss, Squared)

    @property
    def linear(self) -> bool:
        """True of a target that is a number with a scale of its own."""
        return isinstance(self.loss, Huber | Squared)

    def sigma(self, share: float, answers: int = 1) -> float:
        """Return the noise multiplier of each of so many answers that share a part of mu^2."""
        return 1 / (self.mu * sqrt(share / answers))

    def column_shares(self) -> tuple[float, float, float, float, float]:
        """Return the look's shares for numbers, few values, two values, products and weights: equal for each column."""
        kinds = (self.numbers, len(self.few_valued), self.two_valued, self.products, int(bool(self.trimmed)))
        numbers, few, two, products, weights = (self.shares.look * one / max(sum(kinds), 1) for one in kinds)
        return numbers, few, two, products, weights

    def cell_sigma(self) -> float:
        """Return the noise multiplier of each level's cells of the columns."""
        # The other half pays for the sizes of the same columns.
        return self.sigma(self.column_shares()[0] / 2, parts.LEVELS)

    def target_cell_sigma(self) -> float:
        """Return the noise multiplier of each level's cells of a linear model's target."""
        return self.sigma(parts.MEDIAN_PART * self.shares.target, parts.LEVELS)

    def linear_residual_question(
        self, top: float = 1.0, centre: float = 0.0, unit: float = 1.0
    ) -> LinearResidualCounts:
        """Return the question for sizes of residuals at each point."""
        # Of the target alone, at the start, and after each step.
        sigma = self.sigma((1 - parts.MEDIAN_PART) * self.shares.target, self.damped_steps + 2)
        bins, per_octave = parts.RESIDUAL_BINS, parts.RESIDUAL_BINS_PER_OCTAVE
        shared = {"bins": bins, "per_octave": per_octave, "target_centre": centre, "target_unit": unit}
        return LinearResidualCounts.model_validate(shared | {"sigma": sigma, "top": top})

    def band_questions(
        self, edges: tuple[float, ...] = WIDEST_BANDS, centre: float = 0.0, unit: float = 1.0, cut: float = 1.0
    ) -> tuple[BandTotals, BandGradients, BandScores]:
        """Return what least squares asks by bands where its short steps end."""
        sigmas = (self.sigma(share) for share in (self.shares.residuals, self.shares.last_gradient, self.shares.scores))
        shared = {
            "edges": edges,
            "weight_bound": self.weight_bound,
            "target_centre": centre,
            "target_unit": unit,
            "sampling_cut": cut,
        }
        totals, gradients, scores = (shared | {"sigma": sigma} for sigma in sigmas)
        return (
            # Counts and energies together: for sqrt(2) of the noise of one of them, each at half of the share.
            BandTotals.model_validate(totals),
            BandGradients.model_validate(gradients),
            BandScores.model_validate(scores),
        )

    def size_question(self) -> MagnitudeCounts | None:
        """Return the question for the sizes of numeric columns; None where there are none."""
        if not self.numbers:
            return None
        sigma = self.sigma(self.column_shares()[0] / 2)
        return MagnitudeCounts(sigma=sigma, columns=self.numbers, bins=parts.SIZE_BINS)

    def integer_question(self) -> IntegerCounts | None:
        """Return the question for the values of integers of few values; None where there are none."""
        if not self.few_valued:
            return None
        return IntegerCounts(sigma=self.sigma(self.column_shares()[1]), values=self.few_valued)

    def value_question(self) -> ValueCounts | None:
        """Return the question for frequencies of two-valued columns; None where there are none."""
        if not self.two_valued:
            return None
        return ValueCounts(sigma=self.sigma(self.column_shares()[2]), columns=self.two_valued)

    def product_question(self) -> ProductMagnitudeCounts | None:
        """Return the question for the sizes of products of centred columns; None where there are none."""
        if not self.products:
            return None
        sigma = self.sigma(self.column_shares()[3])
        return ProductMagnitudeCounts(sigma=sigma, columns=self.products, bins=parts.PRODUCT_BINS)

    def trimming_question(self) -> MagnitudeCounts | None:
        """Return the question for the sizes of sampling weights; None where they are not trimmed."""
        if not self.trimmed:
            return None
        bins, per_octave = parts.WEIGHT_BINS, parts.WEIGHT_BINS_PER_OCTAVE
        sigma = self.sigma(self.column_shares()[4])
        return MagnitudeCounts(sigma=sigma, of="weights", columns=1, bins=bins, per_octave=per_octave)

    def target_question(self) -> CellCounts | ClassCounts | MagnitudeCounts | None:
        """Return the one question about a category or a count; None for a linear model, which asks for cells.

        Both outcomes are counted, for the price of one: a record has one of them.
        """
        sigma = self.sigma(self.shares.target)
        match self.loss:
            case Logistic():
                return CellCounts(sigma=sigma, of="target", level=1, cells=((0, 1),))
            case Multinomial() as loss:
                return ClassCounts(sigma=sigma, classes=loss.known_classes)
            case Poisson():
                bins, per_octave = parts.COUNT_BINS, parts.COUNT_BINS_PER_OCTAVE
                return MagnitudeCounts(sigma=sigma, of="target", columns=1, bins=bins, per_octave=per_octave)
            case Huber() | Squared():
                return None

    def count_cuts(self, facts: Facts, rate: float, deviation: float, cap: float) -> tuple[float, float]:
        """Return M and b, a Poisson model's largest full rate and largest residual.

        Args:
            facts: public; with the budget they say how far a cut may lie.
            rate: mean count.
            deviation: of residuals.
            cap: largest count, beyond which neither need lie.
        """
        noise = self.weight_bound / (self.mu * sqrt(parts.GRADIENT_SHARE * facts.units))
        noise *= 2 if facts.adjacency is Adjacency.REPLACE_ONE else 1
        noise /= self.mean_weight(facts)
        spectral = self.spectral_noise(facts, 1.0, self.weight_bound)
        most = max(parts.LEAST_RATE_CAP, parts.RATE_CAP_NOISE / spectral) * rate
        return min(most, max(cap, rate)), min(
            max(parts.LEAST_CUT, parts.CUT_NOISE / noise) * deviation, max(cap, deviation)
        )

    def residual_question(self, rate_cap: float, top: float) -> ResidualMagnitudeCounts:
        """Return the question for the sizes of a Poisson model's residuals."""
        sigma, bins, per_octave = self.sigma(self.shares.residuals), parts.COUNT_BINS, parts.COUNT_BINS_PER_OCTAVE
        return ResidualMagnitudeCounts(sigma=sigma, rate_cap=rate_cap, top=top, bins=bins, per_octave=per_octave)

    def moment_question(
        self, centre: float = 0.0, unit: float = 1.0, offset: tuple[float, float] | None = None, cut: float = 1.0
    ) -> SecondMoments | ClassMoments:
        """Return the question for second moments, or with classes: each less its centre, over its unit."""
        if isinstance(self.loss, Multinomial):
            sigma, bound = self.sigma(self.shares.moments), self.weight_bound
            return ClassMoments(sigma=sigma, weight_bound=bound, classes=self.loss.known_classes)
        middle, half = offset or (0.0, 1.0)
        return SecondMoments(
            sigma=self.sigma(self.shares.moments),
            weight_bound=self.weight_bound,
            target_centre=centre,
            target_unit=unit,
            offset_centre=middle,
            offset_unit=half if self.shifted else None,
            sampling_cut=cut,
        )

    def weight_question(self, cut: float = 1.0) -> WeightSums:
        """Return the question for the sums of weights, sampling weights cut there."""
        sigma, sampled = self.sigma(self.shares.weights), bool(self.weighted)
        return WeightSums(sigma=sigma, weight_bound=self.weight_bound, sampled=sampled, sampling_cut=cut)

    def gradient_sigmas(self) -> tuple[float, ...]:
        """Return the noise multipliers of all gradients, in order."""
        shares = self.shares
        return self._sigmas(shares.step_gradients, shares.first_gradient, shares.last_gradient)

    def hessian_sigmas(self) -> tuple[float, ...]:
        """Return the noise multipliers of all Hessians, in order."""
        return self._sigmas(self.shares.step_hessians, self.shares.first_hessian, self.shares.last_hessian)

    def _sigmas(self, walking: float, *precise: float) -> tuple[float, ...]:
        last = (self.sigma(share) for share in precise if share)  # least squares has one
        return (*[self.sigma(walking, self.damped_steps)] * self.damped_steps, *last)

    def _looks(self) -> Iterator[Looked]:
        """Yield the questions about columns and target, in order; their cells are learned."""
        if self.numbers and not self.looked:
            cells = CellCounts(sigma=self.cell_sigma(), level=parts.LEVELS, cells=(parts.MOST_CELLS,) * self.numbers)
            yield from [cells] * parts.LEVELS
        if not self.looked:
            columns = self.size_question(), self.integer_question(), self.value_question(), self.product_question()
            yield from (one for one in (*columns, self.trimming_question()) if one)
        yield from (one for one in (self.target_question(),) if one)
        if self.linear:
            sigma, named = self.target_cell_sigma(), (parts.MOST_CELLS,)
            yield from [CellCounts(sigma=sigma, of="target", level=parts.LEVELS, cells=named)] * parts.LEVELS
            yield self.linear_residual_question()
        yield self.moment_question()
        if self.linear:
            yield self.linear_residual_question()

    def _sums(self) -> Iterator[Looked]:
        """Yield the questions of the steps and of the covariance, in order."""
        planned, bound = self.loss, self.weight_bound
        if isinstance(planned, Multinomial):
            pairs = zip(self.gradient_sigmas(), self.hessian_sigmas(), strict=True)
            yield from class_sums(planned.known_classes, bound, tuple(pairs), self.sigma(self.shares.scores))
            yield self.weight_question()
            return
        loss = Huber(scale=1.0) if isinstance(planned, Squared) else widest(planned)
        bends = Squared() if isinstance(planned, Squared) else loss
        pairs = zip(self.gradient_sigmas(), self.hessian_sigmas(), strict=True)
        for step, (gradient, hessian) in enumerate(pairs):
            precise = step >= self.damped_steps
            if step == self.damped_steps and isinstance(loss, CutPoisson):
                yield self.residual_question(loss.rate_cap, loss.cut)
            if not (precise and self.least_squares):
                yield ReencodedGradient(sigma=gradient, loss=loss, weight_bound=bound)
            yield ReencodedCurvature(sigma=hessian, of="hessian", loss=bends, weight_bound=bound)
            if self.linear and not precise:
                yield self.linear_residual_question()
        if self.least_squares:
            yield from self.band_questions()
        else:
            yield ReencodedCurvature(sigma=self.sigma(self.shares.scores), of="score", loss=loss, weight_bound=bound)
        if self.weighted or not self.linear:
            yield self.weight_question()

    def questions(self) -> tuple[Looked, ...]:
        """Return all questions in their order; learned values have placeholders of the largest width."""
        return (*self._looks(), *self._sums())

    def widening(self, facts: Facts, curvature: float, score_bound: float, variance_ratio: float = 1.0) -> float:
        """Return how much wider than a non-private interval one is foreseen to be, for any identified coefficient.

        SE = 1.12 sqrt(kappa/(n c) + t^2 b^2/((n mu)^2 G c^2)) for a slope per deviation of its column, beside
        1/sqrt(n c) without privacy: a re-encoding has both suffer from correlation alike. With sampling weights a of
        mean m and design effect E a^2/m^2, c is m c and 1/(n c) is the design effect times that, private or not.

        Args:
            facts: public.
            curvature: c, mean second derivative of the loss at the truth.
            score_bound: b; of a Poisson model that of `count_cuts`.
            variance_ratio: factor of the scores' variance over the model's; the non-private interval has it, too.
        """
        sampling, private = self.variances(facts, curvature, score_bound)
        return parts.WIDTH_FACTOR * sqrt(sampling + private / variance_ratio)

    def variances(self, facts: Facts, curvature: float, score_bound: float) -> tuple[float, float]:
        """Return kappa, and t^2 b^2/(n mu^2 G c), which the noise adds to it."""
        bound = weight_bound_for(self, facts, curvature, score_bound)
        return parts.KAPPA[self.loss.kind], bound**2 * self.private_part(facts, curvature, score_bound)

    def private_part(self, facts: Facts, curvature: float, score_bound: float) -> float:
        """Return b^2/(n mu^2 G c)."""
        b = score_bound * (2 if facts.adjacency is Adjacency.REPLACE_ONE else 1)
        share = parts.BANDS_SHARE if self.least_squares else parts.GRADIENT_SHARE
        private = (b / self.mu) ** 2 / (facts.units * share * curvature)
        sampling = self.counted_sampling(facts)
        return private / (1.0 if sampling is None else sampling.square)

    def counted_sampling(self, facts: Facts) -> Sampling | None:
        """Return sampling weights as parts of the largest that counts, or that is foreseen; None: there are none."""
        return facts.sampling.over_reach() if facts.sampling is not None and self.trimmed else facts.sampling

    def mean_weight(self, facts: Facts) -> float:
        """Return the mean sampling weight, over the largest that counts: noise grows by its inverse."""
        sampling = self.counted_sampling(facts)
        return 1.0 if sampling is None else sampling.mean

    def reach(self, facts: Facts, scale: float | None = None) -> float:
        """Return the largest residual that the claimed line of least squares is taken to count, in residual scales.

        Args:
            facts: public, with ranges; the target's median is taken to be in the middle.
            scale: of residuals, in encoded units; None: as the model's public facts have it.
        """
        assert facts.ranges is not None, "the planner says where columns lie"
        if self.tails == "assumed_light":
            return parts.NEAREST
        lower, upper = facts.ranges.target
        known = facts.residual_scale if scale is None else scale
        assert known is not None, "a linear model has one"
        return (upper - lower) / 2 / known + RESIDUALS_BEYOND

    def hessian_noise(self, facts: Facts, curvature: float, peak: float | None = None) -> float:
        """Return the spectral noise of both last Hessians together over the mean second derivative.

        Above 1 a job ends with `too many coefficients`.

        Args:
            facts: public.
            curvature: c, mean second derivative of the loss at the truth.
            peak: the largest second derivative, of a Poisson model M of `count_cuts`; None: the loss's.
        """
        usual = self.reach(facts) if self.least_squares else 1.0
        bound = weight_bound_for(self, facts, curvature, usual)
        return self.spectral_noise(facts, peak or self.peak, bound) / curvature

    @property
    def peak(self) -> float:
        """The largest second derivative."""
        usual = {
            "huber": 1.0,
            "squared": 1.0,
            "multinomial": parts.CLASS_PEAK,
        }  # in residual scales; in contrasts, of two classes too
        return usual.get(self.loss.kind, self.loss.curvature_peak)

    def spectral_noise(self, facts: Facts, peak: float, bound: float) -> float:
        """Return the spectral noise of both last Hessians together, with this t."""
        share = self.shares.first_hessian + self.shares.last_hessian
        moved = sqrt(2) if facts.adjacency is Adjacency.REPLACE_ONE else 1.0
        deviation = moved * bound**2 * peak / facts.units
        deviation /= self.mean_weight(facts)
        loss, spread = self.loss, 2 * sqrt(facts.dimension)
        if isinstance(loss, Multinomial):  # its noise is on coordinates: sqrt((p + 1) K) in place of 2 sqrt(p (K - 1))
            features = facts.dimension // (loss.known_classes - 1)
            spread = sqrt((features + 1) * loss.known_classes)
        return spread * deviation / (self.mu * sqrt(share))

    def slope_noise(self, facts: Facts, curvature: float) -> float:
        """Return the deviation that noise alone gives a slope per deviation of its column, to first order, by c."""
        moved = 2 if facts.adjacency is Adjacency.REPLACE_ONE else 1
        counted = facts.units * self.mean_weight(facts)
        bound = weight_bound_for(self, facts, curvature, 1.0)
        return moved * bound / (counted * self.mu * sqrt(parts.GRADIENT_SHARE) * curvature)
