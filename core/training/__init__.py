"""Use cases for workers: open the records, make the door, fit, publish. `core.training.attempt.run` is the way in."""
