"""Named experiments with published or measured counterparts."""
