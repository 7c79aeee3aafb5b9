"""Patterns of texts: a regular expression for programs, and words with an example for people.

The answer to a wrong text gives the words, so that nobody has to read a regular expression. OpenAPI shows all three.
"""

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True)
class Pattern:
    """The required form of a text; used in `Annotated[str, ...]`."""

    expression: str
    """Of the whole text, from `^` to `$`; digits are ASCII."""
    words: str
    """The allowed texts in words; they follow `must be`."""
    example: str
    """A text of this form."""

    @property
    def fix(self) -> str:
        """The message for a text of another form."""
        return f"must be {self.words}, such as {self.example}"

    def check(self, text: str) -> str:
        """Return a text of this form unchanged.

        Raises:
            ValueError: another form; the message gives the allowed texts and repeats nothing that was sent.
        """
        if not re.fullmatch(self.expression, text, re.ASCII) or text.endswith("\n"):
            raise ValueError(self.fix)
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401 - pydantic's own
        """Check the text after the other annotations of the field have checked it."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Show the pattern, the words and the example."""
        return {**handler(schema), "pattern": self.expression, "description": self.words, "examples": [self.example]}


def identifier(prefix: str) -> Pattern:
    """Return the pattern of the identifiers of one kind of thing, such as `ds` of datasets."""
    words = f"an identifier: {prefix}_ and 1 to 36 letters or digits"
    return Pattern(rf"^{prefix}_[0-9A-Za-z]{{1,36}}$", words, f"{prefix}_01m7z047qwmg8dd4x4h9dm983j")
