"""`workers.embedded`, with observed trainers."""

from workers.embedded import main

if __name__ == "__main__":
    main(supervisor="tests.support.observed_supervisor")
