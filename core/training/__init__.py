"""Use cases for workers: open the records, make the oracle, fit, publish. `core.training.attempt.run` is the way in."""
