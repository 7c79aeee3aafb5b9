"""`python -m api` with a planted bug: a job that is not there is taken to be there."""

from typing import Any

from api.__main__ import main
from core.base.errors import NotFound
from core.service import jobs

plain = jobs.attempts


def attempts(*arguments: Any) -> Any:
    """Return a job's attempts, and fall over where there is no job."""
    try:
        return plain(*arguments)
    except NotFound as error:
        raise KeyError(arguments[-1]) from error


if __name__ == "__main__":
    jobs.attempts = attempts  # type: ignore[assignment] # the bug
    main()
