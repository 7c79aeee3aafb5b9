"""Processes: supervisors that claim jobs, trainers that run them, and the embedded service."""
