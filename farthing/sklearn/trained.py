"""The base of the estimators: declares and uploads records through a draft, trains a job, and keeps coefficients."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from farthing.client import Client
from farthing.errors import FarthingError
from farthing.frames import rows_of
from farthing.schemas.datasets import Dataset

LEAST_RECORDS: Final = 2
DELTA: Final = "1e-6"
DUPLICATE: Final = "duplicate-dataset"

Bounds = tuple[float, float] | Sequence[tuple[float, float]]
"""One pair for all features, or one for each."""


class Trained(BaseEstimator):  # type: ignore[misc] # scikit-learn ships no types
    """An estimator of whatever kind: the declaration of records, the upload, the job, and its coefficients."""

    _kind: str
    coef_: Any
    intercept_: Any

    def __init__(
        self,
        client: Client | None = None,
        dataset: str | None = None,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        epsilon: float = 1.0,
        scope: str | None = None,
        budget: Mapping[str, Any] | None = None,
        bounds: Bounds = (-5.0, 5.0),
        fit_intercept: bool = True,
    ) -> None:
        self.client = client
        self.dataset = dataset
        self.target = target
        self.features = features
        self.epsilon = epsilon
        self.scope = scope
        self.budget = budget
        self.bounds = bounds
        self.fit_intercept = fit_intercept

    def _train(self, client: Client, dataset: str, model: Mapping[str, Any], *, whole: bool = False) -> Any:
        """Train by the default method, and keep what identifies the model.

        Args:
            client: of the service.
            dataset: `ds_...`.
            model: of the job.
            whole: spend the whole budget, which was opened for this fit.
        """
        asked: dict[str, Any] = {
            "dataset": dataset,
            "model": dict(model),
            "privacy": {"epsilon": self.epsilon},
        }
        if whole:
            # An allowance for lost workers would have to fit beside it.
            asked |= {"privacy": {"budget_share": "1"}, "retry_allowance": 0}
        released = client.train(asked)
        self.dataset_, self.model_ = dataset, released.id
        return released

    def _fit_there(self, client: Client) -> None:
        """Train on the dataset that is named; its own columns are the features."""
        if self.dataset is None or self.target is None:
            raise ValueError("fit() trains on a dataset that is there: name `dataset` and `target`, or give X and y")
        model = {"kind": self._kind_there(client), "target": self.target, "intercept": self.fit_intercept}
        released = self._train(
            client, self.dataset, model if self.features is None else model | {"features": list(self.features)}
        )
        self.coefficients_ = {one.name: one.estimate for one in released.table().coefficients}

    def _kind_there(self, client: Client) -> str:  # noqa: ARG002 - classifiers ask it
        return self._kind

    def _fit_here(self, client: Client, X: Any, columns: list[dict[str, Any]], y: Any, kind: str) -> None:
        """Upload records through a draft, train on them, and keep the coefficients as arrays.

        Args:
            client: of the service.
            X: features, shape (rows, features).
            columns: declarations of the features, then of the target.
            y: the target, shape (rows,).
            kind: of the model.
        """
        names = [str(column["name"]) for column in columns]
        arrays = dict(zip(names, [*X.T, y], strict=True))
        dataset = _uploaded(client, arrays, columns, self.scope, self.budget or {"epsilon": self.epsilon})
        model = {"kind": kind, "target": names[-1], "intercept": self.fit_intercept}
        released = self._train(client, dataset.id, model, whole=self.budget is None and self.scope is None)
        estimates = np.array([one.estimate for one in released.table().coefficients], dtype=float)
        block = X.shape[1] + self.fit_intercept
        table = estimates[: len(estimates) // block * block].reshape(-1, block)  # a scale may come last
        self.intercept_ = table[:, 0] if self.fit_intercept else np.zeros(len(table))
        self.coef_ = table[:, int(self.fit_intercept) :]

    def _declared(self, X: Any) -> list[dict[str, Any]]:
        """Return the declarations of the features.

        Raises:
            ValueError: there are not as many bounds as features.
        """
        names = getattr(self, "feature_names_in_", None)
        names = [f"x{place}" for place in range(X.shape[1])] if names is None else list(names)
        pairs = self._pairs(X.shape[1])
        return [
            {"name": str(name), "type": "number", "lower": float(lower), "upper": float(upper)}
            for name, (lower, upper) in zip(names, pairs, strict=True)
        ]

    def _pairs(self, features: int) -> Any:
        pairs = np.asarray(self.bounds, dtype=float)
        pairs = np.tile(pairs, (features, 1)) if pairs.ndim == 1 else pairs
        if pairs.shape != (features, 2):
            raise ValueError(f"bounds: give one pair, or {features} pairs, one for each feature")
        return pairs

    def _margins(self, X: Any) -> Any:
        """Return X, cut to the declared bounds as the records were, times the coefficients."""
        check_is_fitted(self)
        if not hasattr(self, "coef_"):
            raise ValueError("this estimator was trained by fit(): `predict` takes rows of declared columns")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        lower, upper = self._pairs(X.shape[1]).T
        return np.clip(X, lower, upper) @ self.coef_.T + self.intercept_

    def _predicted(self, X: Any) -> list[dict[str, Any]]:
        """Return the service's predictions for rows of declared columns."""
        rows, _ = rows_of(X)
        with opened(self) as client:
            return client.predict(self.model_, rows)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


def opened(estimator: Trained) -> AbstractContextManager[Client]:
    """Open the estimator's client for a block; one of the environment's is closed after it."""
    return Client.from_environment() if estimator.client is None else nullcontext(estimator.client)


def free_name(name: str, columns: Sequence[Mapping[str, Any]]) -> str:
    """Return a name that no column has."""
    taken = {column["name"] for column in columns}
    while name in taken:
        name += "_"
    return name


def _uploaded(
    client: Client,
    arrays: Mapping[str, Any],
    columns: list[dict[str, Any]],
    name: str | None,
    budget: Mapping[str, Any],
) -> Dataset:
    """Return the dataset of some records, uploaded through a draft into the scope of a name.

    Records that are there already are charged to the budget that they have, whatever name was given.
    """
    known = [
        one for one in client.datasets() if name is not None and one.name == name and one.scope and one.state == "ready"
    ]
    terms = {"scope": known[0].scope} if known else {"budget": {"delta": DELTA, **budget}}
    draft = client.upload(arrays, {"name": name or "X", "columns": columns, "seal": False, **terms})
    try:
        return client.seal(draft.id)
    except FarthingError as refusal:
        if refusal.code != DUPLICATE:
            client.erase(draft.id)
            raise
        client.mend(draft.id, {"scope": refusal.problem["scope"], "budget": None})
    try:
        return client.seal(draft.id)
    except FarthingError as refusal:
        client.erase(draft.id)
        if refusal.code != DUPLICATE:  # declared as before, too: the dataset that is there will do
            raise
        return client.dataset(refusal.problem["dataset"])
