"""The base of all answers: `View`, whose fields' docstrings reach the OpenAPI document."""

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """A public answer. A field that a newer service adds is ignored, so an older SDK still reads the answer."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)
