"""The questions that may be asked of private records, each with its sensitivity and the proof of it."""
