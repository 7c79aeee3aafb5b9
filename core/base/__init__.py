"""What every room stands on: failures, settings, logs, identifiers, canonical texts, the version."""
