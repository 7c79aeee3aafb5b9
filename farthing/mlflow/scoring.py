"""The pyfunc that MLflow loads: it asks the service, whose encoding of a row is the one that was fitted.

MLflow keeps this file with the model and runs it, in place of a pickle.
"""

from typing import Any

import mlflow

from farthing.client import Client


class Released(mlflow.pyfunc.PythonModel):  # type: ignore[misc] # MLflow is not checked
    """A released model, behind MLflow's interface."""

    def load_context(self, context: Any) -> None:  # noqa: ANN401 - MLflow's own
        """Remember the model and where the service listens; the key comes from FARTHING_KEY."""
        config = context.model_config
        self._model = Client.from_environment(config["url"]).model(config["model"])

    # MLflow reads a schema from types here, and warns of those that are none.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201, ARG002
        """Return the prediction of each row, a DataFrame with its index and columns such as `predicted_probability`."""
        return self._model.predict(model_input).drop(columns=model_input.columns)


mlflow.models.set_model(Released())
