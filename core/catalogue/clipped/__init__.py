"""DP-Clipped-SGD: its theorems, its two modes, and its plans."""
