"""Byte address to channel, bank and row (compiled half of `address_map`)."""

from __future__ import annotations

from npusim.memory.clocking import divide
from npusim.memory.jit import inlined
from npusim.memory.layout import (
    CHANNEL_WORDS,
    MM_BY_CHANNELS,
    MM_BY_INTERLEAVE,
    MM_CHANNELS,
    MM_INTERLEAVE,
    MM_NUM_CHANNELS,
    MM_NUM_SEGMENTS,
    MM_SEGMENTS,
    SEG_FROM,
    SEG_MASK,
    SEG_TARGET,
    SEG_TO,
    SEGMENT_WORDS,
    TARGET_BANK,
    TARGET_ROW,
    Words,
)


@inlined
def decode(s: Words, mem: int, addr: int) -> tuple[int, int, int]:
    """(channel, bank number in the channel, row) of a burst address."""
    channels, interleave = s[mem + MM_NUM_CHANNELS], s[mem + MM_INTERLEAVE]
    ch, local = s[mem + MM_CHANNELS], addr
    if channels > 1:
        block = divide(addr, s[mem + MM_BY_INTERLEAVE], s[mem + MM_BY_INTERLEAVE + 1])
        round_ = divide(block, s[mem + MM_BY_CHANNELS], s[mem + MM_BY_CHANNELS + 1])
        ch += (block - round_ * channels) * CHANNEL_WORDS
        local = addr + (round_ - block) * interleave
    bank, row = 0, 0
    segment = s[mem + MM_SEGMENTS]
    for _ in range(s[mem + MM_NUM_SEGMENTS]):
        target = s[segment + SEG_TARGET]
        source = local if target <= TARGET_ROW else row
        bits = ((source >> s[segment + SEG_FROM]) & s[segment + SEG_MASK]) << s[segment + SEG_TO]
        if target == TARGET_BANK:
            bank |= bits
        elif target == TARGET_ROW:
            row |= bits
        else:
            bank ^= bits
        segment += SEGMENT_WORDS
    return ch, bank, row
