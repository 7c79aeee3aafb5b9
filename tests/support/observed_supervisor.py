"""`workers.supervisor`, with observed trainers; PATIENCE is how long clients wait for each other at least."""

import os

from workers import gather
from workers.supervisor import main

if __name__ == "__main__":
    gather.LEAST_PATIENCE_SECONDS = float(os.environ.get("PATIENCE", gather.LEAST_PATIENCE_SECONDS))  # type: ignore[misc] # a test's
    main(trainer="tests.support.observed_trainer")
