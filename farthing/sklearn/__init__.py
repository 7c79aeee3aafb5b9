"""scikit-learn's estimators whose coefficients were trained privately by the service.

`DPLogisticRegression(dataset="ds_...", target="y").fit()` trains on a dataset that is there. `fit(X, y)` uploads the
records through a draft, as their owner, and trains on them. Bounds are declared, and never read from the records.
Without a `client` FARTHING_URL and FARTHING_KEY say where and who: then the estimator is cloned, pickled and exported
without a key.

After `fit(X, y)` predictions are made here, by the coefficients as they are, at no cost and without the service. After
`fit()` the service makes them, for rows of declared columns: drawn towards the base rate as far as noise hides the
coefficients.
"""

from collections.abc import Mapping, Sequence
from typing import Any

try:
    import numpy as np
    from scipy.special import expit, softmax
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as absent:
    raise ImportError("scikit-learn is not installed: pip install 'farthing[sklearn]'") from absent

from farthing.client import Client
from farthing.sklearn.trained import LEAST_RECORDS, Bounds, Trained, free_name, opened


class DPLogisticRegression(ClassifierMixin, Trained):  # type: ignore[misc] # as above
    """Logistic regression of two classes or more, with the promise of differential privacy.

    Args:
        client: of the service; None: by FARTHING_URL and FARTHING_KEY.
        dataset: `ds_...`, for `fit()`.
        target: its column to predict, for `fit()`.
        features: its columns to use, for `fit()`; None: all others.
        epsilon: privacy target of a fit, at the scope's delta.
        scope: name of the people behind X, for `fit(X, y)`: uploads of one name share one budget. None: each upload has
            its own.
        budget: of a scope that is opened, such as `{"epsilon": "3", "delta": "1e-6"}`; None: that of one fit.
        bounds: of the features; values outside are cut to them, here and at the service.
        fit_intercept: whether there is an intercept.
        classes: values of y, the first one the baseline; None: those in y, which are then public.

    Attributes:
        coef_: shape (1, features), or (classes, features) with zeros for the baseline.
        intercept_: shape (1,) or (classes,).
        classes_: values of y.
        model_: id of the released model, `mdl_...`, for its intervals.
        dataset_: the dataset that it was trained on.
    """

    _kind = "logistic"

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
        classes: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(
            client,
            dataset,
            target=target,
            features=features,
            epsilon=epsilon,
            scope=scope,
            budget=budget,
            bounds=bounds,
            fit_intercept=fit_intercept,
        )
        self.classes = classes

    def fit(self, X: Any = None, y: Any = None) -> "DPLogisticRegression":
        """Train on the dataset, or upload X and y and train on them.

        Raises:
            FarthingError: the service refused; nothing was spent.
            ValueError: X or y cannot be used.
        """
        if X is None and y is None:
            with opened(self) as client:
                self._fit_there(client)
                (column,) = (one for one in client.dataset(self.dataset_).columns if one["name"] == self.target)
            self.classes_ = np.asarray(column["values"])
            return self
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=LEAST_RECORDS)
        check_classification_targets(y)
        self.classes_ = np.unique(y) if self.classes is None else np.asarray(self.classes)
        places = {value: place for place, value in enumerate(self.classes_.tolist())}
        if (least := len(self.classes_)) < 2:  # noqa: PLR2004 - a contrast
            raise ValueError(f"y has {least} class; there must be two or more")
        if strange := set(y.tolist()) - set(places):
            raise ValueError(f"y has values that are not declared in classes: {sorted(map(str, strange))[:5]}")
        values = [str(place) for place in range(len(self.classes_))]
        several = len(values) > 2  # noqa: PLR2004 - as above
        declared = self._declared(X)
        target = {"name": free_name("y", declared), "type": "category" if several else "binary", "values": values}
        codes = np.array([str(places[value]) for value in y.tolist()])
        with opened(self) as client:
            self._fit_here(client, X, [*declared, target], codes, "multinomial" if several else "logistic")
        if several:
            self.coef_ = np.vstack([np.zeros(X.shape[1]), self.coef_])
            self.intercept_ = np.concatenate([[0.0], self.intercept_])
        return self

    def _kind_there(self, client: Client) -> str:
        (column,) = (one for one in client.dataset(str(self.dataset)).columns if one["name"] == self.target)
        return "multinomial" if column["type"] == "category" else "logistic"

    def decision_function(self, X: Any) -> Any:
        """Return margins, shape (rows,) of two classes, else (rows, classes)."""
        margins = self._margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, shape (rows, classes)."""
        check_is_fitted(self)
        if not hasattr(self, "coef_"):
            found = self._predicted(X)
            several = [list(one["probabilities"].values()) for one in found if "probabilities" in one]
            return np.array(several or [[1 - one["probability"], one["probability"]] for one in found])
        margins = self.decision_function(X)
        if margins.ndim == 1:
            chance = expit(margins)
            return np.column_stack([1 - chance, chance])
        return softmax(margins, axis=1)

    def predict(self, X: Any) -> Any:
        """Return the likeliest class of each row."""
        likeliest = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[likeliest]


class DPLinearRegression(RegressorMixin, Trained):  # type: ignore[misc] # as above
    """Linear regression by a robust loss, with the promise of differential privacy.

    Args:
        client: as of `DPLogisticRegression`, like those up to `fit_intercept`.
        dataset: as there.
        target: as there.
        features: as there.
        epsilon: as there.
        scope: as there.
        budget: as there.
        bounds: as there.
        fit_intercept: as there.
        target_bounds: of y; values outside are cut to them.

    Attributes:
        coef_: shape (features,).
        intercept_: a number.
        model_: id of the released model, `mdl_...`, for its intervals.
        dataset_: the dataset that it was trained on.
    """

    _kind = "linear"

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
        target_bounds: tuple[float, float] = (-5.0, 5.0),
    ) -> None:
        super().__init__(
            client,
            dataset,
            target=target,
            features=features,
            epsilon=epsilon,
            scope=scope,
            budget=budget,
            bounds=bounds,
            fit_intercept=fit_intercept,
        )
        self.target_bounds = target_bounds

    def fit(self, X: Any = None, y: Any = None) -> "DPLinearRegression":
        """Train on the dataset, or upload X and y and train on them.

        Raises:
            FarthingError: the service refused; nothing was spent.
            ValueError: X or y cannot be used.
        """
        if X is None and y is None:
            with opened(self) as client:
                self._fit_there(client)
            return self
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=LEAST_RECORDS)
        declared = self._declared(X)
        lower, upper = map(float, self.target_bounds)
        target = {"name": free_name("y", declared), "type": "number", "lower": lower, "upper": upper}
        with opened(self) as client:
            self._fit_here(client, X, [*declared, target], np.asarray(y, dtype=np.float64), "linear")
        self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])
        return self

    def predict(self, X: Any) -> Any:
        """Return the predicted mean of each row, shape (rows,)."""
        check_is_fitted(self)
        if not hasattr(self, "coef_"):
            return np.array([one["value"] for one in self._predicted(X)])
        return self._margins(X)
