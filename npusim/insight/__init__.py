"""Why a run took as long as it did: readings of finished results, nothing simulated."""
