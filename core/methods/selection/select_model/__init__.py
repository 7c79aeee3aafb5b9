"""The first of several released points that passes a noised test."""
