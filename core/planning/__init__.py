"""The planner: fills what a request left open, predicts, prices and refuses; it reads no record."""
