"""Do intervals cover? Jobs on fresh data sets each, by the real planner and the real door, over a grid of shapes."""
