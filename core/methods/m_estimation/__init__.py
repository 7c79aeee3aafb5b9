"""M-estimation: methods whose estimates have intervals."""
