"""Native implementations of NumPy code, for a step outside its products; built by `python -m core.native.build`."""
