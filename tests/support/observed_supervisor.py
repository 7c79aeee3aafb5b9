"""`workers.supervisor`, with observed trainers."""

from workers.supervisor import main

if __name__ == "__main__":
    main(trainer="tests.support.observed_trainer")
