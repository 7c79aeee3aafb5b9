"""Words beside the numbers of a release: the fitted model, warnings, and a sentence that a paper may quote.

Every figure in it is public or released.
"""

from typing import Any, Final

from scipy.special import ndtri

from core.inference import tails
from core.inference.check_words import checked, estimand
from core.inference.error_bound import ErrorBound, NoisedNorm, SecondOrder, Selection
from core.inference.released import MOCK, Released
from core.inference.rendering import declared
from core.losses.bases import AbstractRobust
from core.losses.counts import Poisson
from core.losses.robust import Huber
from core.losses.weights import Clip
from core.models.design import Design
from core.models.term_words import term_notes
from core.privacy.reports import Promise

TITLES: Final = {
    "logistic": "Logistic regression",
    "linear": "Linear regression",
    "poisson": "Poisson regression",
    "multinomial": "Multinomial logistic regression",
    "phase_retrieval": "Phase retrieval",
}
_NAMES: Final = {
    "poisson": "Poisson regression",
    "multinomial": "multinomial logistic regression",
    "phase_retrieval": "phase retrieval model",
}


def title(released: Released) -> str:
    """Return what was fitted to what."""
    robust = isinstance(released.loss, AbstractRobust)
    return f"{'Robust regression' if robust else TITLES[released.kind]} of {released.target}, differentially private"


def marked(document: dict[str, Any], *, mock: bool) -> dict[str, Any]:
    """Return a summary with the mark of a release of made-up rows, where it is one: title, field and paragraph."""
    if not mock:
        return document
    return document | {"mock": True, "title": f"Mock: {document['title']}", "methods": f"{MOCK} {document['methods']}"}


def loss_words(released: Released) -> str:
    """Return the loss as a phrase, as the method cut it."""
    loss, checks = released.loss, released.checks
    if checks is not None and isinstance(loss, Huber):
        return f"Huber loss (c = {loss.c:g}, residual scale learned, {loss.scale:.4g})"
    if checks is not None and checks.learned.cut is not None and isinstance(loss, Poisson):
        cuts = f"residuals cut at {checks.learned.cut:.4g}, the cut's mean taken back"
        return f"Poisson loss ({cuts}; rates above {checks.learned.rate_cap:.4g} weigh less)"
    return loss.words()


def weight_words(released: Released) -> str:
    """Return the weights as a phrase."""
    if released.checks is not None:
        bound = released.checks.learned.weight_bound
        return f"weights min(1, t^2/|E x|^2) on re-encoded rows E x (t = {bound:.3g})"
    return released.row_words or released.weights.words()


def notes(released: Released) -> list[str]:
    """Return what a reader of intervals must know; shown wherever intervals are, and empty where all went well."""
    flags, said = released.flags, [MOCK] if released.mock else []
    if released.covariance is None:
        said.append(_why_none(released))
    said += checked(released)
    if released.error_bound is not None:
        said.append(claim(released.error_bound))
    if flags.eigenvalues_floored:
        said.append(
            f"{_count(flags.eigenvalues_floored, 'eigenvalue')} of the covariance's noised matrices fell below a "
            f"public floor ({flags.curvature_floored} of the Hessian, {flags.score_floored} of the score "
            "matrix): figures along such directions rest on the floor, not on the records."
        )
    if flags.optimizer_floored:
        said.append(
            f"{_count(flags.optimizer_floored, 'eigenvalue')} of the last Newton step's Hessian fell below the floor: "
            "steps along such directions are shorter than Newton's."
        )
    if flags.slow_directions:
        widened = "" if released.correction != "stationary" else (
            "the covariance was widened by what a public guess of plausible coefficients allows, and "
        )  # fmt: skip
        said.append(
            f"{_count(flags.slow_directions, 'direction')} had not forgotten where the steps began: the estimate leans "
            f"towards the start there; {widened}intervals may still be too short."
        )
    if flags.scale_floored:
        said.append("The residual scale ended at its public floor: intervals may be far too short.")
    if released.covariance is not None and released.correction != "stationary":
        said.append(_other_correction(released))
    if released.ridge:
        said.append(f"A ridge penalty of {released.ridge:g} on encoded coefficients pulls estimates towards zero.")
    learned = None if released.checks is None else released.checks.learned.sampling
    said += term_notes(released.design, released.units, learned)
    said += released.loss.notes
    if isinstance(released.weights, Clip) and released.row_words is None:
        said.append(
            "Clipped gradients solve another equation than the model's: estimates may be biased however many records "
            "there are."
        )
    return said


_NOTHING_FOUND: Final = {
    "data_exhausted": "no point was found that no round leaves",
    "step_cap": "no point was found that no round leaves",
    "gradient_not_short": "the gradient was too long for rounds of escape, so the point is not stationary",
    "escaped": "the last round moved away, from a saddle or down a slope",
}


def _second_order(bound: ErrorBound, found: SecondOrder) -> str:
    """Say how a search for a second-order stationary point ended, and what it is worth."""
    outcome = found.outcome.replace("_", " ")
    searched = (
        f"The method ended by {outcome} ({bound.variant}) after {_count(found.phases, 'phase')} with "
        f"{_count(found.rounds, 'round')} of escape, {_count(found.escapes, 'escape')} and "
        f"{_count(found.restarts, 'restart')} of the gradient estimate"
    )
    if bound.models:
        about = f"It is about {', '.join(bound.models)}, released before; its privacy is that of the check"
        searched = f"{about}. {searched}"
    if found.outcome in _NOTHING_FOUND:
        return f"{searched}: {_NOTHING_FOUND[found.outcome]}, and nothing is claimed of this point."
    looked = (
        f"it looked for a gradient of at most {found.alpha:.4g} and no curvature below -{found.gamma_star:.4g}, in "
        "encoded units"
    )
    chance = "" if found.chance is None else (
        f"; a round leaves a saddle so curved with probability {found.chance:.3g}, linearised, all of them stay with "
        f"{found.missed:.3g}"
    )  # fmt: skip
    what, sure = bound.quantity.replace("_", " "), "no confidence is claimed"
    if bound.value is not None:
        most, confidence = f"{bound.value:.4g}", f"{bound.confidence:.4g}"
        sure = f"{_article(what)} of at most {most} is claimed with confidence {confidence}"
    resting = "; ".join(bound.conditions)
    return f"{searched}: {looked}{chance}; {sure}. It rests on what nobody has checked: {resting}."


def _norm(bound: ErrorBound, found: NoisedNorm) -> str:
    """Return the noised norm of a gradient in words, and the bound for the population's."""
    about = f"It is about {', '.join(bound.models)}, released before; its privacy is that of the check"
    sentence = (
        f"{about}. The norm of the mean gradient in its {found.of} was measured once, as {found.told:.4g} "
        "with noise of "
        f"{found.noise:.2g}, in encoded units; {found.left:.4g} is left of it once noise is allowed for"
    )
    if bound.value is None or bound.confidence is None:
        return f"{sentence}; nothing is claimed of the population's."
    resting = "; ".join(bound.conditions)
    said = (
        f"{sentence}. With {found.tolerance:.4g} added for noise and sampling, a mean gradient of at most "
        f"{bound.value:.4g} is claimed with confidence {bound.confidence:.4g}, if all of this holds, which "
        f"nobody has checked: {resting}. Of curvature nothing is said."
    )
    if bound.is_vacuous:
        said += f" No gradient is longer than {found.trivial:.4g}: the claim says nothing."
    return said


def _selection(bound: ErrorBound, found: Selection) -> str:
    """Say which candidate was selected, if any, and what it is worth."""
    bent = "of any curvature" if found.gamma_star is None else f"no curvature below -{found.gamma_star:.4g}"
    looked = f"{_count(found.candidates, 'candidate')} ({found.mode}; gradients up to {found.alpha:.4g}, {bent}, in "
    looked = f"A private test looked at {looked}encoded units)"
    if found.chosen is None:
        return f"{looked}: none passed, none is returned, and the coefficients shown are zeros."
    selected = f"{looked}: number {found.chosen}, counted from 0, was selected and is returned unchanged"
    if bound.value is None or bound.confidence is None:
        return f"{selected}; nothing is claimed of it."
    turned = "" if found.curvature is None else f" and no curvature below -{found.curvature:.4g}"
    resting = "; ".join(bound.conditions)
    return (
        f"{selected}; a gradient of at most {bound.value:.4g}{turned} is claimed with confidence "
        f"{bound.confidence:.4g}, if all of this holds, which nobody has checked: {resting}."
    )


def claim(bound: ErrorBound) -> str:
    """Say what a method claims of its estimate, how it ended, and what the claim rests on."""
    if bound.second_order is not None:
        return _second_order(bound, bound.second_order)
    if bound.selection is not None:
        return _selection(bound, bound.selection)
    if bound.norm is not None:
        return _norm(bound, bound.norm)
    what = bound.quantity.replace("_", " ")
    ending = f"The method ended by {bound.ended_by.replace('_', ' ')} ({bound.variant})"
    if bound.value is None or bound.confidence is None:
        return f"{ending}; it claims nothing of the {what} here."
    if not bound.conditions:
        resting = ""
    else:
        resting = f", if all of this holds, which nobody has checked: {'; '.join(bound.conditions)}"
    said = (
        f"{ending}; it claims {_article(what)} of at most {bound.value:.4g} in encoded units, with confidence "
        f"{bound.confidence:.4g}{resting}."
    )
    if bound.is_vacuous:
        said += f" The start satisfies {bound.untrained:.4g} without any training: the claim says nothing."
    return said


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _why_none(released: Released) -> str:
    if released.checks is not None and released.checks.job:
        return f"All intervals are withheld: {', '.join(released.checks.job)}."
    if not isinstance(released.weights, Clip) and not released.convex:
        return "There are no intervals: no covariance is known for a loss that is not convex."
    if isinstance(released.weights, Clip):
        return "There are no intervals: no covariance is known for clipped gradients or sufficient statistics."
    return "There are no intervals: the job asked for none."


def _other_correction(released: Released) -> str:
    if released.correction == "plain":
        return "The variance that the optimizer's noise adds is left out (plain): intervals are too short."
    return "The printed correction counts the optimizer's noise by a rule of thumb: intervals may be too short."


def complete_records(released: Released) -> dict[str, Any] | None:
    """Return how many records have all values, with the interval of the noise; None where nobody counted them."""
    learned = None if released.checks is None else released.checks.learned
    if learned is None or learned.complete is None or learned.complete_deviation is None:
        return None
    reach = float(ndtri((1 + released.level) / 2)) * learned.complete_deviation
    # The estimate is cut to what counts can be before the interval is laid around it. That brings it nearer to the
    # true count, so that the interval covers as often, and none is of width zero.
    middle = min(max(learned.complete, 0.0), float(released.units))
    interval = (max(middle - reach, 0.0), min(middle + reach, float(released.units)))
    return {"estimate": middle, "interval": interval, "level": released.level}


def methods_paragraph(released: Released, cited: str) -> str:
    """Return a paragraph for the methods section of a paper; every figure in it is public.

    Args:
        released: a model's row.
        cited: authors and year of its method; empty: nothing is cited.
    """
    report = released.privacy
    other = "; ".join(f"{promise_phrase(p)} under {relation.value}" for relation, p in report.implies.items())
    inference = (
        "No intervals were released."
        if released.covariance is None
        else f"Unchecked intervals ({100 * released.level:g} %) use a private sandwich covariance; the variance added "
        f"by the optimizer's noise is {'left out' if released.correction == 'plain' else 'included'} "
        f"({released.correction} correction), and {released.flags.eigenvalues_floored} eigenvalues of noised matrices "
        "were floored."
    )
    scaled = "features scaled by their declared bounds"
    if released.checks is not None:
        scaled = "features re-encoded by centres, scales and correlations that were learned privately"
        if released.covariance is not None:
            inference = (
                f"Intervals ({100 * released.level:g} %) use a private sandwich covariance with the variance of all "
                "noise in the last steps; those of coefficients that failed a check were withheld."
            )
            inference += tails.assumption(released)
        inference += estimand(released)
    ridge = "" if not released.ridge else f", a ridge penalty of {released.ridge:g}"
    ridge += "".join(f", {one}" for one in _terms(released.design))
    counted = complete_records(released)
    kind = "robust regression" if isinstance(released.loss, AbstractRobust) else f"{released.kind} regression"
    records = f"{released.units:,} records declared (excluded ones are not counted)"
    if counted is not None:
        records = f"records ({declared(released.units, counted)})"
    return (
        f"We fitted a {_NAMES.get(released.kind, kind)} of {released.target} "
        f"({loss_words(released)}) on {len(released.theta)} parameters and {records} "
        f"with {weight_words(released)}{ridge}, {scaled}, by "
        f"{_fitted_by(released)} with {released.steps} steps and Gaussian noise on every answer"
        f"{f' ({cited})' if cited else ''}. {inference} The release is differentially private with "
        f"{promise_phrase(report.promise)} for neighbouring data sets under {report.adjacency.value}"
        f"{', which implies ' + other if other else ''}."
    )


def _fitted_by(released: Released) -> str:
    """Return the method as a phrase; of a sweep that of its winner, and what it won against."""
    swept = released.sweep
    if swept is None or swept.optimizer is None:
        return released.optimizer.replace("_", " ")
    kind = str(swept.optimizer["kind"]).replace("_", " ")
    return f"{kind}, the best of {swept.candidates} candidate settings by a noised mean error,"


def _terms(design: Design) -> list[str]:
    """Return what stands beside the main effects, as phrases."""
    said, offset = [], design.offset
    terms = dict.fromkeys(feature.column for feature in design.features if feature.factors)
    if terms:
        said.append(f"interactions {', '.join(str(one) for one in terms)}")
    if offset is not None:
        said.append(f"the {'log of the exposure' if offset.log else 'offset'} {offset.column.name}")
    if design.sampling is not None:
        said.append(f"sampling weights {design.sampling.column.name}")
    return said


def apart(sites: int) -> str:
    """Return what a methods section has to add of a federated model."""
    return (
        f" The records are those of {sites} sites, which were not put together: each answered from its own, with "
        "noise of its own, and is differentially private for the people behind its own records. The figures are what "
        "each of those that stayed to the end promises at least."
    )


def promise_phrase(promise: Promise) -> str:
    """Write a promise in the currencies that can state it."""
    parts = [f"(epsilon, delta) = ({promise.epsilon}, {promise.delta})"]
    if promise.mu is not None:
        parts.insert(0, f"mu = {promise.mu} (Gaussian differential privacy)")
    return ", that is ".join(parts)
