"""Private second-order optimisation: what is known of Gauss-PSGD and its gradient oracle before a record is read."""
