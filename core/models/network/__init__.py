"""Neural networks as data: a closed list of layers, and models made of them."""
