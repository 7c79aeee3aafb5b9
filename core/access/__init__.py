"""Who may ask, what each site's login may do, and the audit log of who asked."""
