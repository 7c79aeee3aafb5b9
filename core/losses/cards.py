"""Catalogue entries of losses and weights: names, assumptions and promises.

Constants are formulas in the fields of a loss, of weights, and of one another; `t` is the bound of the weights.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from core.losses.assumption import Assumption
from core.losses.bases import AbstractLoss
from core.losses.losses import (
    Clip,
    Huber,
    LogCosh,
    Logistic,
    Mallows,
    Multinomial,
    OstrovskiiBach,
    Poisson,
    PseudoHuber,
    Schweppe,
    SmoothedHuber,
    Squared,
)
from core.losses.nonconvex import Brier, Cauchy, GemanMcClure, RobustPhase, SineLink, SmoothPhase
from core.privacy.facts import Frozen

_FINITE = Assumption(text="the target is a finite number; other records count as null", checked="runtime")
_SCALE = Assumption(
    text="scale is declared, or planned from the declared range: never computed from the records", checked="declared"
)
_ROBUST = (_FINITE, _SCALE)
_NOT_CONVEX = Assumption(text="no intervals and no Newton steps: the loss is not convex", checked="static")
_CLIPPED = Assumption(text="gradients are clipped: nothing else bounds them", checked="static")
_SQUARE = (
    Assumption(text="the target's declared lower bound is 0 or more", checked="static"),
    Assumption(text="the method starts at random or from numbers: at zero it would stay", checked="static"),
    Assumption(text="b and -b tell the same: which of them is found means nothing", checked="declared"),
    _CLIPPED,
    _NOT_CONVEX,
)


class LossCard(Frozen):
    """A loss's entry."""

    kind: str
    title: str
    models: tuple[str, ...] = Field(description="the kinds of models that may have it")
    weights: tuple[str, ...] = Field(description="the kinds of weights that it goes with")
    score_bound: str | None = Field(description="most of |d loss/d margin|; null where it has none")
    curvature_peak: str | None = Field(description="most of the second derivative in the margin; null: it has no bound")
    weak_convexity: str | None = Field(
        default="0", description="most of minus the second derivative; 0: convex, null: no bound before clipping"
    )
    concordance: str | None = Field(description="least gamma of |f'''| <= gamma f''; null where there is none")
    assumptions: tuple[Assumption, ...]


class WeightsCard(Frozen):
    """An entry of weights."""

    kind: str
    title: str
    formula: str
    gradient_bound: str = Field(description="B, most of a record's gradient norm")
    curvature_bound: str | None = Field(description="Bbar, most of its Hessian's norm; null: no question needs one")
    assumptions: tuple[Assumption, ...]


def _robust(
    kind: str, title: str, concordance: str | None, score_bound: str = "c", weak_convexity: str = "0"
) -> LossCard:
    return LossCard(
        kind=kind,
        title=title,
        models=("linear",),
        weights=("mallows", "schweppe", "clip"),
        score_bound=score_bound,
        curvature_peak="1/scale",
        weak_convexity=weak_convexity,
        concordance=concordance,
        assumptions=_ROBUST if weak_convexity == "0" else (*_ROBUST, _NOT_CONVEX),
    )


LOSSES: Mapping[type[AbstractLoss], LossCard] = {
    Logistic: LossCard(
        kind="logistic",
        title="log(1 + exp(m)) - y m",
        models=("logistic",),
        weights=("mallows", "clip"),
        score_bound="1",
        curvature_peak="1/4",
        concordance="1",
        assumptions=(Assumption(text="the target is one of two declared values", checked="static"),),
    ),
    Brier: LossCard(
        kind="brier",
        title="(p - y)^2/2, p = expit(m)",
        models=("logistic",),
        weights=("mallows", "clip"),
        score_bound="4/27",
        # At p = (15 - sqrt(33))/24, and the next line at its conjugate: see `Brier`.
        curvature_peak="(15 - 33**0.5)**2*(9 + 33**0.5)*(1 + 33**0.5)/(8*24**3)",
        weak_convexity="(15 + 33**0.5)**2*(9 - 33**0.5)*(33**0.5 - 1)/(8*24**3)",
        concordance=None,
        assumptions=(Assumption(text="the target is one of two declared values", checked="static"), _NOT_CONVEX),
    ),
    Multinomial: LossCard(
        kind="multinomial",
        title="-log softmax, the first declared value the baseline",
        models=("multinomial",),
        weights=("mallows", "clip"),
        score_bound="1 if classes == 2 else 2**0.5",
        curvature_peak="1/4 if classes == 2 else 1/2",
        concordance=None,
        assumptions=(Assumption(text="the target is one of the declared values", checked="static"),),
    ),
    Poisson: LossCard(
        kind="poisson",
        title="F(m) - y m with F' = min(exp(m), cap), residuals F' - y cut to c where one is given",
        models=("poisson",),
        weights=("mallows", "clip"),
        score_bound="cap if c is None else min(c, cap)",
        curvature_peak="cap",
        concordance=None,
        assumptions=(
            Assumption(text="the target's declared lower bound is 0 or more", checked="static"),
            Assumption(text="no count and no mean is above the cap, else they are cut to it", checked="declared"),
            Assumption(
                text="residuals are cut symmetrically by c: inconsistent wherever they are not symmetric",
                checked="declared",
            ),
        ),
    ),
    Huber: LossCard(
        kind="huber",
        title="scale rho_c(r), r = (y - m)/scale: quadratic up to c, linear beyond",
        models=("linear",),
        weights=("mallows", "schweppe", "clip"),
        score_bound="c",
        curvature_peak="1 if joint else 1/scale",
        concordance=None,
        assumptions=(
            *_ROBUST,
            Assumption(text="joint: Mallows weights; no scale is below scale_floor", checked="static"),
        ),
    ),
    SmoothedHuber: _robust("smoothed_huber", "Huber's, its corner a quartic on (c, c + h)", None, "c + h/2"),
    LogCosh: _robust("log_cosh", "scale c^2 log cosh(r/c)", "2/(c*scale)"),
    PseudoHuber: _robust("pseudo_huber", "scale c^2 (sqrt(1 + (r/c)^2) - 1)", "3/(2*c*scale)"),
    OstrovskiiBach: _robust(
        "ostrovskii_bach", "scale c^2/2 (s - 1 + log(2/(1 + s))), s = sqrt(1 + 4 (r/c)^2)", "1.5908/(c*scale)"
    ),
    GemanMcClure: _robust(
        "geman_mcclure",
        "scale c^2/2 u^2/(1 + u^2), u = r/c: redescending, bounded",
        None,
        "3*3**0.5/16*c",
        "1/(4*scale)",
    ),
    Cauchy: _robust("cauchy", "scale c^2/2 log(1 + u^2), u = r/c: redescending", None, "c/2", "1/(8*scale)"),
    Squared: LossCard(
        kind="squared",
        title="(y - m)^2/2",
        models=("linear",),
        weights=("clip",),
        score_bound=None,
        curvature_peak="1",
        concordance=None,
        assumptions=(_FINITE, _CLIPPED),
    ),
    SineLink: LossCard(
        kind="sine_link",
        title="(m + a sin m - y)^2/2, a = `amplitude`: a link that is not linear, y in encoded units",
        models=("linear",),
        weights=("clip",),
        score_bound=None,
        curvature_peak=None,
        weak_convexity=None,
        concordance=None,
        assumptions=(_FINITE, _CLIPPED, _NOT_CONVEX),
    ),
    SmoothPhase: LossCard(
        kind="smooth",
        title="(m^2 - y)^2/4",
        models=("phase_retrieval",),
        weights=("clip",),
        score_bound=None,
        curvature_peak=None,
        weak_convexity="cap",
        concordance=None,
        assumptions=_SQUARE,
    ),
    RobustPhase: LossCard(
        kind="robust",
        title="|m^2 - y|, sharp and not smooth",
        models=("phase_retrieval",),
        weights=("clip",),
        score_bound=None,
        curvature_peak=None,
        weak_convexity="2",
        concordance=None,
        assumptions=_SQUARE,
    ),
}

WEIGHTS: Mapping[type[Frozen], WeightsCard] = {
    Mallows: WeightsCard(
        kind="mallows",
        title="every record's loss times w(x), x with the intercept's 1",
        formula="w(x) = min(1, (t/|x|)^power)",
        gradient_bound="t*score_bound",
        curvature_bound="None if power == 1 else t**2*curvature_peak",
        assumptions=(
            Assumption(text="Hessians and intervals: power 2 or 3, power 1 bounds none", checked="static"),
            Assumption(text="rows with |x| > t count for less, whatever their target", checked="declared"),
        ),
    ),
    Schweppe: WeightsCard(
        kind="schweppe",
        title="v(x) inside a robust loss: that of v y and v x, unweighted",
        formula="v(x) = min(1, t/|x|)",
        gradient_bound="t*score_bound",
        curvature_bound="t**2*curvature_peak",
        assumptions=(Assumption(text="rows with |x| > t have their residuals cut later", checked="declared"),),
    ),
    Clip: WeightsCard(
        kind="clip",
        title="no weight: every record's gradient g is cut to g min(1, t/|g|)",
        formula="1",
        gradient_bound="t",
        curvature_bound=None,
        assumptions=(
            Assumption(
                text="no intervals and no Newton steps: the clipped gradient is that of no loss", checked="static"
            ),
            Assumption(
                text="the estimate is the point where clipped gradients cancel, which is not the model's parameter",
                checked="declared",
            ),
        ),
    ),
}


def entry(card: LossCard | WeightsCard, settings: type[Frozen]) -> dict[str, Any]:
    """Return an entry with the JSON Schema of what a job may say."""
    return {**card.model_dump(mode="json"), "description": settings.__doc__, "settings": settings.model_json_schema()}
