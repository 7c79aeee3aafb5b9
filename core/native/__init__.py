"""Compiled twins of NumPy code, for what a step spends outside its products; built by `python -m core.native.build`."""
