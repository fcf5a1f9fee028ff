"""A trace in Perfetto's protobuf format: tracks, slices, counters, flows, interned names.

Source of the field numbers: ``protos/perfetto/trace`` of the Perfetto project, messages Trace,
TracePacket, TrackDescriptor, CounterDescriptor, TrackEvent, DebugAnnotation and InternedData.
Perfetto counts nanoseconds: times are rounded down, which keeps their order; every slice also
carries its exact picoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.report.protobuf import fixed64, integer, message, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npusim.report.trace_model import Sample, Slice, TraceModel, Track

PS_PER_NS = 1000
_SEQUENCE = integer(10, 1)  # trusted_packet_sequence_id: one writer
_CLEARED, _NEEDS_STATE = integer(13, 1 | 2), integer(13, 2)  # sequence_flags
_BEGIN, _END, _COUNTER = integer(9, 1), integer(9, 2), integer(9, 4)  # TrackEvent.type
_EXPLICIT = integer(11, 3)  # TrackDescriptor.child_ordering: by sibling_order_rank
#: fields of InternedData
_NAMES, _CATEGORIES, _KEYS, _VALUES = 2, 1, 3, 29


def perfetto_trace(model: TraceModel) -> bytes:
    """The whole file.

    Parameters
    ----------
    model : TraceModel
        What to write. Notes go into the description of the first track.

    Returns
    -------
    bytes
        One Trace message; events in order of time, an end before a begin of the same moment.
    """
    packets = [_descriptor(track, model) for track in model.tracks]
    packets.extend(packet for _, packet in sorted(_events(model), key=lambda event: event[0]))
    packets[:1] = [packets[0] + _CLEARED]
    return b"".join(message(1, packet + _SEQUENCE) for packet in packets)


def _descriptor(track: Track, model: TraceModel) -> bytes:
    """Packet that declares a track; children in the order in which they are declared."""
    content = integer(1, track.number) + text(2, track.name)
    if track.parent:
        content += integer(5, track.parent)
    if track.unit is not None:
        content += message(8, text(6, track.unit))
    content += _EXPLICIT + integer(12, track.number)
    if track.number == 1:
        content += text(14, "; ".join([model.title, *model.notes]))
    return message(60, content)


class _Interned:
    """Numbers of texts; a text is sent with the first packet that uses it."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        self._fresh: list[bytes] = []

    def number(self, kind: int, value: str) -> int:
        """Number of a text of a kind (a field of InternedData), from 1 on."""
        key = (kind, value)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers) + 1
            entry = integer(1, self._numbers[key]) + text(2, value)
            self._fresh.append(message(kind, entry))
        return self._numbers[key]

    def packet_fields(self) -> bytes:
        """InternedData of the texts that were new since the last call, and the sequence flag."""
        fresh = b"".join(self._fresh)
        self._fresh.clear()
        return _NEEDS_STATE + (message(12, fresh) if fresh else b"")


def _events(model: TraceModel) -> Iterator[tuple[tuple[int, int, int], bytes]]:
    """Packets with their place: exact time, kind, and order of appearance."""
    yield from _slices(model)
    for index, sample in enumerate(model.samples):
        yield (sample.time_ps, 2, index), _sample(sample)


def _slices(model: TraceModel) -> Iterator[tuple[tuple[int, int, int], bytes]]:
    """Begin and end of every slice; begins carry name, annotations and flows."""
    interned = _Interned()
    flows = _flow_fields(model)
    # in the order of the file, so that a text is sent before it is used again
    order = sorted(range(len(model.slices)), key=lambda i: (model.slices[i].start_ps, i))
    for index in order:
        item = model.slices[index]
        begin = _begin(item, flows.get(index, b""), interned)
        yield (item.start_ps, 1, index), begin
        yield (item.end_ps, 0, index), _packet(item.end_ps, _END + integer(11, item.track))


def _begin(item: Slice, flows: bytes, interned: _Interned) -> bytes:
    """Packet that begins a slice."""
    event = _BEGIN + integer(11, item.track)
    event += integer(10, interned.number(_NAMES, item.name))
    event += integer(3, interned.number(_CATEGORIES, item.category))
    for key, value in (("start_ps", item.start_ps), ("duration_ps", item.end_ps - item.start_ps)):
        event += message(4, integer(1, interned.number(_KEYS, key)) + integer(4, value))
    if item.stage is not None:
        value = interned.number(_VALUES, item.stage)
        event += message(4, integer(1, interned.number(_KEYS, "stage")) + integer(17, value))
    return _packet(item.start_ps, event + flows) + interned.packet_fields()


def _flow_fields(model: TraceModel) -> dict[int, bytes]:
    """flow_ids of producers and terminating_flow_ids of consumers, by slice; ids from 1 on."""
    fields: dict[int, bytes] = {}
    for number, flow in enumerate(model.flows, start=1):
        fields[flow.producer] = fields.get(flow.producer, b"") + fixed64(47, number)
        fields[flow.consumer] = fields.get(flow.consumer, b"") + fixed64(48, number)
    return fields


def _sample(sample: Sample) -> bytes:
    """Packet with a counter's value."""
    event = _COUNTER + integer(11, sample.track) + integer(30, sample.value)
    return _packet(sample.time_ps, event)


def _packet(time_ps: int, event: bytes) -> bytes:
    """Fields of a packet with an event: timestamp in ns, rounded down."""
    return integer(8, time_ps // PS_PER_NS) + message(11, event)
