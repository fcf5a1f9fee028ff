"""Closed forms: bounds, roofline, and published formulas; they never see a machine."""
