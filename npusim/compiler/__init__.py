"""npusim compiler."""
