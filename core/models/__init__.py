"""What is fitted to which columns: kinds of models, their terms, and the encoding of declared columns."""
