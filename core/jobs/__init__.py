"""Jobs as rows: their transitions, who is next, who serves them, and the clients and sites of federated ones."""
