"""Reads a Perfetto trace with the reference protobuf parser, and says what is wrong with it.

The messages are declared here by hand, by the field numbers of the Perfetto project, so that the
reader shares nothing with the writer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

UINT64, INT32, INT64, UINT32, FIXED64, STRING, BYTES, MESSAGE = 4, 5, 3, 13, 6, 9, 12, 11
FIELDS = {
    "Trace": [("packet", 1, "*TracePacket")],
    "TracePacket": [
        ("timestamp", 8, UINT64),
        ("trusted_packet_sequence_id", 10, UINT32),
        ("track_event", 11, "TrackEvent"),
        ("interned_data", 12, "InternedData"),
        ("sequence_flags", 13, UINT32),
        ("track_descriptor", 60, "TrackDescriptor"),
    ],
    "TrackDescriptor": [
        ("uuid", 1, UINT64),
        ("name", 2, STRING),
        ("parent_uuid", 5, UINT64),
        ("counter", 8, "CounterDescriptor"),
        ("child_ordering", 11, INT32),
        ("sibling_order_rank", 12, INT32),
        ("description", 14, STRING),
    ],
    "CounterDescriptor": [("unit_name", 6, STRING)],
    "TrackEvent": [
        ("category_iids", 3, "*uint64"),
        ("debug_annotations", 4, "*DebugAnnotation"),
        ("type", 9, INT32),
        ("name_iid", 10, UINT64),
        ("track_uuid", 11, UINT64),
        ("counter_value", 30, INT64),
        ("flow_ids", 47, "*fixed64"),
        ("terminating_flow_ids", 48, "*fixed64"),
    ],
    "DebugAnnotation": [
        ("name_iid", 1, UINT64),
        ("int_value", 4, INT64),
        ("string_value_iid", 17, UINT64),
    ],
    "InternedData": [
        ("event_categories", 1, "*Interned"),
        ("event_names", 2, "*Interned"),
        ("debug_annotation_names", 3, "*Interned"),
        ("debug_annotation_string_values", 29, "*Interned"),
    ],
    "Interned": [("iid", 1, UINT64), ("name", 2, STRING)],
}
SCALARS = {"uint64": UINT64, "fixed64": FIXED64}
BEGIN, END, COUNTER = 1, 2, 4


@cache
def trace_class():
    """Message class of a whole trace."""
    file = descriptor_pb2.FileDescriptorProto(name="trace.proto", package="p", syntax="proto2")
    for name, fields in FIELDS.items():
        declared = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            one = declared.field.add(name=field_name, number=number, label=1)
            if isinstance(kind, int):
                one.type = kind
                continue
            one.label = 3 if kind.startswith("*") else 1
            base = kind.lstrip("*")
            one.type = SCALARS.get(base, MESSAGE)
            if one.type == MESSAGE:
                one.type_name = f".p.{base}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Trace"))


@dataclass
class Found:
    """What a trace holds; slices are (track name, name, category, start_ps, duration_ps, stage)."""

    tracks: dict = field(default_factory=dict)  # uuid: descriptor
    slices: list = field(default_factory=list)
    samples: list = field(default_factory=list)  # (track name, ns, value)
    flows: list = field(default_factory=list)  # (producer slice, consumer slice)
    faults: list = field(default_factory=list)


class _Reader:
    def __init__(self):
        self.found = Found()
        self.texts = {}
        self.open = {}
        self.last_ns = 0
        self.produced, self.consumed = {}, {}

    def read(self, content):
        for packet in trace_class().FromString(content).packet:
            self._packet(packet)
        for track, name in self.open.items():
            self._fault(f"{name} on track {track} never ends")
        for number in self.produced.keys() | self.consumed.keys():
            ends = (self.produced.get(number), self.consumed.get(number))
            if None in ends:
                self._fault(f"flow {number} has one end")
            self.found.flows.append(ends)
        return self.found

    def _fault(self, text):
        self.found.faults.append(text)

    def _packet(self, packet):
        if packet.trusted_packet_sequence_id != 1:
            self._fault("packet without a sequence")
        for kind, entries in packet.interned_data.ListFields():
            for entry in entries:
                if self.texts.setdefault((kind.name, entry.iid), entry.name) != entry.name:
                    self._fault(f"text {entry.iid} changes")
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.uuid in self.found.tracks:
                self._fault(f"track {track.uuid} twice")
            if track.parent_uuid and track.parent_uuid not in self.found.tracks:
                self._fault(f"track {track.uuid} has an unknown parent")
            self.found.tracks[track.uuid] = track
        if packet.HasField("track_event"):
            self._event(packet, packet.track_event)

    def _event(self, packet, event):
        if packet.timestamp < self.last_ns:
            self._fault(f"{packet.timestamp} after {self.last_ns}")
        self.last_ns = packet.timestamp
        if event.track_uuid not in self.found.tracks:
            self._fault(f"unknown track {event.track_uuid}")
            return
        track = self.found.tracks[event.track_uuid]
        if track.HasField("counter") != (event.type == COUNTER):
            self._fault(f"wrong event on track {track.name}")
        if event.type == COUNTER:
            self.found.samples.append((track.name, packet.timestamp, event.counter_value))
        elif event.type == BEGIN:
            self._begin(packet, event, track)
        elif self.open.pop(event.track_uuid, None) is None:
            self._fault(f"end without begin on track {track.name}")

    def _begin(self, packet, event, track):
        if event.track_uuid in self.open:
            self._fault(f"two slices at once on track {track.name}")
        name = self._text("event_names", event.name_iid)
        self.open[event.track_uuid] = name
        values = {
            self._text("debug_annotation_names", a.name_iid): (
                self._text("debug_annotation_string_values", a.string_value_iid)
                if a.string_value_iid
                else a.int_value
            )
            for a in event.debug_annotations
        }
        (category,) = (self._text("event_categories", iid) for iid in event.category_iids)
        if values["start_ps"] // 1000 != packet.timestamp:
            self._fault(f"{name} begins at another time than it says")
        row = (values["start_ps"], values["duration_ps"], values.get("stage"))
        index = len(self.found.slices)
        self.found.slices.append((track.name, name, category, *row))
        for ids, ends in (
            (event.flow_ids, self.produced),
            (event.terminating_flow_ids, self.consumed),
        ):
            for number in ids:
                if ends.setdefault(number, index) != index:
                    self._fault(f"flow {number} twice")

    def _text(self, kind, iid):
        if (kind, iid) not in self.texts:
            self._fault(f"text {iid} is used before it is sent")
        return self.texts.get((kind, iid))


def read_trace(content):
    """What a Perfetto trace holds, and its faults."""
    return _Reader().read(content)


def flow_counts(found):
    """Flows by their two slices."""
    return Counter((found.slices[a], found.slices[b]) for a, b in found.flows)
