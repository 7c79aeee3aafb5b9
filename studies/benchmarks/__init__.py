"""Goals that the papers' methods are held to; `make bench` runs them after the service's own."""
