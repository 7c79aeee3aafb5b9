"""`workers.app`, with observed trainers."""

from workers.app import main

if __name__ == "__main__":
    main(trainer="tests.support.observed_trainer")
