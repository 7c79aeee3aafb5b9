"""The base that every room uses: failures, settings, logs, identifiers, canonical texts, the version."""
