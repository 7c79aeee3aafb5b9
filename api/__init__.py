"""HTTP only: parse, call one use case, render. Never imports torch."""
