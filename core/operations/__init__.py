"""Operation: figures, backups, retention, logins of sites, reconciling with a lost witness."""
