"""The fixture that tests that gate a change start with, for the studies' tests too."""

from tests.conftest import grids_anew

__all__ = ["grids_anew"]
