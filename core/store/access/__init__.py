"""Who may ask, what each site's login may do, and the trail of who asked."""
