"""`workers.rank`, with a file that says what is about to be read, and one with all of it if LISTEN asks for that."""

import os

from tests.support.listened import listen
from tests.support.observed_trainer import JOB, observe_sums
from workers import rank

if __name__ == "__main__":
    observe_sums(rank=1)
    if "LISTEN" in os.environ:
        listen(JOB, rank=1)
    rank.main()
