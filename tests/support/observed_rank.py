"""`workers.rank`, with a file that says what is about to be read."""

from tests.support.observed_trainer import observe_sums
from workers import rank

if __name__ == "__main__":
    observe_sums(rank=1)
    rank.main()
