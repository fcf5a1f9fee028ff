"""Graph to `Program`: lay out, plan, tile, split over cores, emit."""
