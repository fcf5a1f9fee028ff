"""Jumps over the steady parts of a stream: recorded hops between equal states of a memory."""
