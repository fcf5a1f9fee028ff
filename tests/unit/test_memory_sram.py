"""Bank conflicts of stream sets: hand-derived counts, and a cycle-by-cycle oracle."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.memory.sram import RATE_UNIT, Banks, Stream, conflict, conflict_slowdown, steps_of

KIB = 1024
LONG = 1 << 20
#: bank = (address >> 12) & 7
COARSE = Banks(banks=8, port_bytes=64, interleave_bytes=4 * KIB)
#: 16 words of 32 bytes, one after the other
FINE = Banks(banks=16, port_bytes=32, interleave_bytes=32)


def lanes(count, step, width=64):
    """`count` accesses of one engine in every cycle, `step` apart."""
    return tuple(Stream(0, i * step, count * step, width, LONG) for i in range(count))


def sequential(owner, base, width=64, rate=RATE_UNIT):
    return Stream(owner, base, width, width, LONG, rate)


def test_the_banks_of_the_example_are_those_of_the_address_bits():
    # bank = (addr >> 12) & 7: of 64-byte words 64 lie in a bank, 512 in a round
    assert steps_of(sequential(0, 0), COARSE) == 512
    assert steps_of(Stream(0, 0, 32 * KIB, 64, LONG), COARSE) == 1
    assert steps_of(Stream(0, 0, 4 * KIB, 64, LONG), COARSE) == 8


@pytest.mark.parametrize(
    ("step", "slowdown"),
    [
        (4 * KIB, 1),  # bank-aligned: eight accesses a cycle, one in each bank
        (8 * KIB, 2),  # four banks serve two accesses each
        (16 * KIB, 4),
        (32 * KIB, 8),  # pathological: all eight in one bank
        (36 * KIB, 1),  # a pad of one bank per row: 9 is prime to 8
    ],
)
def test_stride_decides_how_many_banks_share_the_accesses_of_a_cycle(step, slowdown):
    assert conflict_slowdown(lanes(8, step), COARSE) == slowdown


def test_two_streams_in_one_bank_run_at_half_speed_each():
    pair = (Stream(0, 0, 32 * KIB, 64, LONG), Stream(1, 64, 32 * KIB, 64, LONG))
    found = conflict(pair, COARSE)
    assert [Fraction(s, found.unit) for s in found.slow] == [2, 2]
    assert (found.blame[0][0], found.blame[1][1]) == (0, 0)  # each owes it to the other
    assert found.blame[0][1] == found.blame[1][0] > 0


def test_streams_in_different_banks_do_not_meet_and_third_parties_are_not_held_up():
    apart = (Stream(0, 0, 32 * KIB, 64, LONG), Stream(1, 4 * KIB, 32 * KIB, 64, LONG))
    assert conflict(apart, COARSE).is_free
    third = (*apart, Stream(2, 64, 32 * KIB, 64, LONG))
    found = conflict(third, COARSE)
    assert [Fraction(s, found.unit) for s in found.slow] == [2, 1, 2]


def test_a_second_port_serves_two_streams_of_a_bank():
    pair = (Stream(0, 0, 32 * KIB, 64, LONG), Stream(1, 64, 32 * KIB, 64, LONG))
    two = Banks(banks=8, port_bytes=64, interleave_bytes=4 * KIB, ports=2)
    assert conflict(pair, two).is_free
    # three streams on two ports: 3/2
    assert conflict_slowdown((*pair, Stream(2, 128, 32 * KIB, 64, LONG)), two) == Fraction(3, 2)


def test_in_step_streams_collide_all_along_unless_the_banks_queue_a_round():
    # same bank at every step without queues; over a whole round every bank has work for 128 of 512
    pair = (sequential(0, 0), sequential(1, 32 * KIB))
    strict = Banks(8, 64, 4 * KIB, queue_depth=1)
    assert conflict_slowdown(pair, strict) == 2
    assert conflict_slowdown((pair[0], sequential(1, 36 * KIB)), strict) == 1  # next bank
    assert conflict_slowdown(pair, COARSE) == 1


def test_a_queue_of_two_smooths_two_wide_streams_over_the_other_half():
    # 256-byte accesses alternate between banks 0-7 and 8-15: 2 words of 1 at each step, in step;
    # 2 words of 2 over two steps
    pair = (sequential(0, 0, 256), sequential(1, 512, 256))
    assert conflict_slowdown(pair, Banks(16, 32, 32, queue_depth=1)) == 2
    assert conflict_slowdown(pair, Banks(16, 32, 32, queue_depth=2)) == 1


def test_streams_that_ask_less_than_every_cycle_fit_beside_each_other():
    halves = (
        sequential(0, 0, 512, RATE_UNIT // 2),
        sequential(1, 0, 512, RATE_UNIT // 2),
    )
    assert conflict(halves, FINE).is_free
    more = (*halves, sequential(2, 0, 512, RATE_UNIT // 4))
    assert conflict_slowdown(more, FINE) == Fraction(5, 4)  # 1/2 + 1/2 + 1/4 words a cycle


def test_a_short_region_stays_in_its_bank():
    # 2 KiB in one bank of 4 KiB: however long the period, only that bank is asked
    short = tuple(Stream(i, i * 2 * KIB, 64, 64, 32) for i in range(2))
    assert conflict_slowdown(short, COARSE) == 2
    other = (short[0], Stream(1, 4 * KIB, 64, 64, 32))
    assert conflict(other, COARSE).is_free


def test_one_wide_access_in_one_bank_holds_itself_up():
    found = conflict((Stream(0, 0, 256, 256, LONG),), Banks(8, 64, 4 * KIB, queue_depth=1))
    assert Fraction(found.slow[0], found.unit) == 4  # four words of one bank
    assert found.blame[0][0] > 0


def test_shifting_a_set_by_whole_banks_changes_nothing():
    pair = (sequential(0, 100), Stream(1, 5 * KIB, 12 * KIB, 64, LONG))
    moved = tuple(Stream(s.owner, s.base + 12 * KIB, s.stride, s.width, s.count) for s in pair)
    assert conflict(pair, COARSE) == conflict(moved, COARSE)


@pytest.mark.parametrize(
    "keys",
    [{"banks": 0}, {"ports": 0}, {"interleave_bytes": 48}, {"queue_depth": 0}],
)
def test_impossible_banks_are_refused(keys):
    with pytest.raises(ValueError, match=next(iter(keys))):
        Banks(**{"banks": 8, "port_bytes": 32, "interleave_bytes": 64, **keys})


def served(streams, banks):
    """Slots of 1 / ports cycle that each owner needs, serving words one by one; and all slots.

    In a window every bank has a queue; each slot every bank serves the next word of it. The next
    window begins when all banks are empty and at least `window` cycles have passed.
    """
    period = lcm(*(steps_of(s, banks) for s in streams))
    window = banks.queue_depth or period
    steps = lcm(period, window)
    owners = 1 + max(s.owner for s in streams)
    slots = [0] * owners
    for first in range(0, steps, window):
        queues = {}
        for step in range(first, first + window):
            for s in streams:
                at = step % period
                nth = at * s.count // period if s.count < period else at
                start = s.base + nth * s.stride
                for word in range(
                    start // banks.port_bytes, (start + s.width - 1) // banks.port_bytes + 1
                ):
                    bank = word * banks.port_bytes // banks.interleave_bytes % banks.banks
                    queues.setdefault(bank, []).append(s.owner)
        users = {bank: set(queue) for bank, queue in queues.items()}
        emptied = dict.fromkeys(range(owners), window * banks.ports)
        slot = 0
        while any(queues.values()):
            slot += 1
            for bank, queue in queues.items():
                if queue:
                    queue.pop()
                    if not queue:
                        for owner in users[bank]:
                            emptied[owner] = max(emptied[owner], slot)
        for owner in range(owners):
            slots[owner] += emptied[owner]
    return [Fraction(n, steps * banks.ports) for n in slots]


GEOMETRIES = st.builds(
    lambda banks, word, words, ports, depth: Banks(banks, word, word * words, ports, depth),
    st.sampled_from([1, 2, 3, 4, 8]),
    st.sampled_from([4, 16]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([None, 1, 2, 4]),
)


@st.composite
def sets(draw):
    owners = draw(st.integers(1, 3))
    return tuple(
        Stream(
            owner=draw(st.integers(0, owners - 1)) if i >= owners else i,
            base=draw(st.integers(0, 300)),
            stride=draw(st.sampled_from([4, 12, 16, 32, 48, 64, 100])),
            width=draw(st.integers(1, 40)),
            count=draw(st.sampled_from([1, 3, LONG])),
        )
        for i in range(draw(st.integers(owners, 4)))
    )


@given(sets(), GEOMETRIES)
def test_the_count_equals_serving_word_by_word(streams, banks):
    found = conflict(streams, banks)
    assert [Fraction(s, found.unit) for s in found.slow] == served(streams, banks)


@given(sets(), GEOMETRIES)
def test_more_ports_never_slow_down_and_nobody_is_faster_than_alone(streams, banks):
    found = conflict(streams, banks)
    more = conflict(
        streams,
        Banks(
            banks.banks,
            banks.port_bytes,
            banks.interleave_bytes,
            banks.ports + 1,
            banks.queue_depth,
        ),
    )
    for owner, slow in enumerate(found.slow):
        assert Fraction(more.slow[owner], more.unit) <= Fraction(slow, found.unit)
        assert slow >= found.unit
        assert (slow > found.unit) == (sum(found.blame[owner]) > 0)
