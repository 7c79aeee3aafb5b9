"""Answers as plain pages, for people without a client."""

from html import escape
from typing import Any


def report_html(content: dict[str, Any]) -> str:
    """Return a report as a plain page: nested definition lists, every text escaped.

    What is promised comes first, then the job that it is promised of, without what it does not have.
    """
    title = f"Privacy report of {content['job']['id']}"
    told = {name: value for name, value in content["job"].items() if value not in (None, "", [], {})}
    shown = {**{name: value for name, value in content.items() if name != "job"}, "job": told}
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        "<style>body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
        "dt{font-weight:bold}dd{margin:0 0 .3em 1.5em}</style></head>"
        f"<body><h1>{escape(title)}</h1>{_definitions(shown)}</body></html>"
    )


def _definitions(value: object) -> str:
    if isinstance(value, dict):
        named = ((str(name).replace("_", " "), item) for name, item in value.items() if name != "object")
        inner = "".join(f"<dt>{escape(name)}</dt><dd>{_definitions(item)}</dd>" for name, item in named)
        return f"<dl>{inner}</dl>"
    if isinstance(value, list):
        return "<ul>" + "".join(f"<li>{_definitions(item)}</li>" for item in value) + "</ul>"
    return escape("none" if value is None else str(value))
