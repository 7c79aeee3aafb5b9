"""What the tests that gate a change start with, the studies' tests start with too."""

from tests.conftest import grids_anew

__all__ = ["grids_anew"]
