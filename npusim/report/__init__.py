"""npusim report."""
