"""Perturbed descent on SPIDER's estimates."""
