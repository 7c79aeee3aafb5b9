"""`python -m api` where the optional package `public_planner` is not installed."""

import sys

from api.__main__ import main

if __name__ == "__main__":
    sys.modules["public_planner"] = None  # type: ignore[assignment] # Python's own way to say that a module is not there
    main()
