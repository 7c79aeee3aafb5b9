"""A condition that a guarantee rests on, of a method or a loss."""

from typing import Literal

from core.privacy.facts import Frozen


class Assumption(Frozen):
    """A condition that a guarantee rests on, and how it is checked."""

    text: str
    checked: Literal["declared", "static", "runtime"]
