"""Random bits, the integer lattice, discrete Gaussian noise and sampling: the only rooms where randomness is made."""
