"""Do intervals cover? Jobs on fresh data sets each, by the real planner and the real oracle, over a grid of shapes."""
