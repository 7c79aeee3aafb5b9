"""Arrow without pandas, for processes of ours that use it for nothing else.

Arrow loads pandas, where it is installed, as soon as numbers come or go: half a second of each upload and each job.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Final

_UNWANTED: Final = "pandas"


class _Without(MetaPathFinder):
    """Finds nothing, and says of one package that it is not there."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        """Refuse the package.

        Raises:
            ModuleNotFoundError: it is the one.
        """
        del path, target
        if name == _UNWANTED:
            raise ModuleNotFoundError(name, name=name)


def leave_pandas_out() -> None:
    """Have Arrow do without pandas in this process, from now on."""
    sys.meta_path.insert(0, _Without())
