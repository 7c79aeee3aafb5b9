"""Access: principals and keys, rights of each site's login, and the audit log."""
