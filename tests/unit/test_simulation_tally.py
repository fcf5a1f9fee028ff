"""Tallies: sums and multiples of counts stay exact integers."""

from __future__ import annotations

from npusim.simulation.tally import Tally, weighted_sum

ONE = Tally({("phase", "elapsed_ps"): 10, ("stage", "qkv", "macs"): 3})
TWO = Tally({("phase", "elapsed_ps"): 5, ("stage", "down", "macs"): 4})


def test_a_missing_count_is_zero():
    assert ONE["stage", "lm_head", "macs"] == 0


def test_a_sum_adds_equal_keys_and_keeps_the_others():
    total = ONE.plus(TWO, times=3)
    assert total["phase", "elapsed_ps"] == 10 + 3 * 5
    assert total["stage", "qkv", "macs"] == 3
    assert total["stage", "down", "macs"] == 3 * 4


def test_a_sum_leaves_its_parts_alone():
    ONE.plus(TWO)
    assert ONE.counts == {("phase", "elapsed_ps"): 10, ("stage", "qkv", "macs"): 3}


def test_weights_are_whole_and_sums_beyond_64_bits_stay_exact():
    huge = Tally({("phase", "macs"): 2**62})
    assert weighted_sum([(huge, 2**10), (ONE, 1)])["phase", "macs"] == 2**72


def test_names_come_once_each_in_order_of_appearance():
    both = ONE.plus(TWO)
    assert both.names("stage") == ["qkv", "down"]
    assert list(both.rows("stage")) == [(("qkv", "macs"), 3), (("down", "macs"), 4)]
