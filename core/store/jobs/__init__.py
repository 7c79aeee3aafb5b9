"""Jobs as rows: their arrows, who is next, who serves them, and the clients and sites of federated ones."""
