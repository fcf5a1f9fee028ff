"""Reference cases of public cycle-level DRAM simulators: read, replayed and compared."""
