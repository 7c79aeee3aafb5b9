"""Schemas: every request and answer of the API that service, SDK and console share, declared once.

The lowest layer: it imports pydantic alone, so that each side can use it.
"""
