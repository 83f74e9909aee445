"""How fast, measured on this machine: every row in one run, as ratios."""
