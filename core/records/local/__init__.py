"""Files that stay on their owner's machine: checked against a declaration, or drafted one, by the decoder's code."""
