"""The experiments of Avella-Medina, Bradshaw and Loh (2023) with the code that jobs run, in simulation.

`python -m studies.inference all --quick` runs every one; see `docs/papers/inference.md` for what came out.
"""
