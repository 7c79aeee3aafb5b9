"""The checker of words: sentences of pages, docstrings, messages and the console, held to limits.

`python -m tests.support.prose` prints today's figures, their ceilings and their goals; `--show RULE` lists what a rule
found; `--write` lowers the ceilings to today's figures. `make check` fails where a figure is above its ceiling.
"""
