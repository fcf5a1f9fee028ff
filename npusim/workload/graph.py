"""The operator graph: operators in program order, joined by the tensors they share."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.tensor import Role, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import networkx as nx

    from npusim.workload.operator import Operator


class OperatorGraph:
    """A directed acyclic graph of operators over `networkx.DiGraph`.

    Operators are added in an order in which they may run; an edge joins the producer of a tensor
    name to each later reader of that name. Tensors without a producer are graph inputs, weights or
    cached KV. Only KV tensors (appends) and tensors written in parts may have several producers; a
    reader depends on all so far.

    Parameters
    ----------
    operators : Iterable[Operator], optional
        Added in order.
    """

    def __init__(self, operators: Iterable[Operator] = ()) -> None:
        import networkx  # slow to import, so only when a graph is made

        self._digraph: nx.DiGraph[str] = networkx.DiGraph()
        self._operators: dict[str, Operator] = {}
        self._producers: dict[str, list[str]] = defaultdict(list)
        self._read_names: set[str] = set()
        self._parts: dict[str, list[Tensor]] = defaultdict(list)
        for operator in operators:
            self.add(operator)

    def add(self, operator: Operator) -> None:
        """Append an operator.

        Raises
        ------
        WorkloadError
            If its name is taken, or it produces a tensor that exists already.
        """
        if operator.name in self._operators:
            raise WorkloadError(operator.name, "operator names must be unique")
        for tensor in operator.outputs:
            is_read, is_part = tensor.name in self._read_names, tensor.all_rows > 0
            taken = is_read or (tensor.name in self._producers and not is_part)
            if taken and tensor.role is not Role.KV:
                raise WorkloadError(operator.name, "produces a tensor that exists", tensor.name)
            if is_part:
                self._check_part(operator.name, tensor)
        self._operators[operator.name] = operator
        self._digraph.add_node(operator.name, operator=operator)
        for tensor in operator.inputs:
            for producer in self._producers.get(tensor.name, ()):
                self._digraph.add_edge(producer, operator.name, tensor=tensor.name)
            self._read_names.add(tensor.name)
        for tensor in operator.outputs:
            self._producers[tensor.name].append(operator.name)

    def _check_part(self, name: str, tensor: Tensor) -> None:
        """Parts of a tensor are parts of the same one and do not overlap."""
        for other in self._parts[tensor.name]:
            alike = replace(
                other, shape=tensor.shape, first_row=tensor.first_row, stored_bytes=None
            )
            if alike != tensor or other.shape[1:] != tensor.shape[1:]:
                raise WorkloadError(name, "produces a part of another tensor", tensor.name)
            ends = (other.first_row + other.shape[0], tensor.first_row + tensor.shape[0])
            if other.first_row < ends[1] and tensor.first_row < ends[0]:
                raise WorkloadError(name, "produces rows that exist", tensor.name)
        self._parts[tensor.name].append(tensor)

    def __len__(self) -> int:
        return len(self._operators)

    def __iter__(self) -> Iterator[Operator]:
        return iter(self._operators.values())

    def __getitem__(self, name: str) -> Operator:
        return self._operators[name]

    @property
    def digraph(self) -> nx.DiGraph[str]:
        """The graph; nodes are operator names with attribute `operator`, edges carry `tensor`."""
        return self._digraph

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All operators in program order, which is topological."""
        return tuple(self)

    @property
    def stages(self) -> tuple[str, ...]:
        """Stage labels in order of first appearance."""
        return tuple(dict.fromkeys(op.stage for op in self))

    @property
    def layers(self) -> tuple[int, ...]:
        """Layer indices in order of first appearance."""
        return tuple(dict.fromkeys(op.layer for op in self if op.layer is not None))

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all operators."""
        return sum(op.macs for op in self)

    def producers(self, operator: Operator | str) -> tuple[Operator, ...]:
        """Operators whose outputs `operator` reads."""
        return self._named(self._digraph.predecessors(_name(operator)))

    def consumers(self, operator: Operator | str) -> tuple[Operator, ...]:
        """Operators that read an output of `operator`."""
        return self._named(self._digraph.successors(_name(operator)))

    def producers_of(self, tensor_name: str) -> tuple[Operator, ...]:
        """Operators that write the tensor; empty for a graph input, weight or cached KV."""
        return self._named(self._producers.get(tensor_name, ()))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Activation tensors that no operator produces, each once."""
        read = [t for op in self for t in op.inputs if t.role is Role.ACTIVATION]
        return tuple({t.name: t for t in read if t.name not in self._producers}.values())

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Activation tensors that no operator reads."""
        written = [t for op in self for t in op.outputs if t.role is Role.ACTIVATION]
        return tuple(t for t in written if t.name not in self._read_names)

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """Weight tensors, each name once (a tied embedding appears once)."""
        read = [t for op in self for t in op.inputs if t.role is Role.WEIGHT]
        return tuple({t.name: t for t in reversed(read)}.values())[::-1]

    def compulsory_read_bytes(self, role: Role) -> int:
        """Bytes that must come from DRAM when nothing is resident at the start.

        Each tensor name counts once, at the largest slice an operator reads. KV that this graph
        appends need not be read back; activations count only as graph inputs.
        """
        largest: dict[str, int] = {}
        for operator in self:
            for tensor in operator.inputs:
                if tensor.role is role:
                    nbytes = operator.bytes_of(tensor)
                    largest[tensor.name] = max(largest.get(tensor.name, 0), nbytes)
        written = self._written_bytes(role)
        if role is Role.ACTIVATION:
            return sum(nbytes for name, nbytes in largest.items() if name not in written)
        return sum(max(0, nbytes - written.get(name, 0)) for name, nbytes in largest.items())

    def compulsory_write_bytes(self, role: Role) -> int:
        """Bytes that must go to DRAM: appended KV and graph outputs."""
        if role is Role.ACTIVATION:
            return sum(tensor.nbytes for tensor in self.outputs)
        return sum(self._written_bytes(role).values())

    def compulsory_bytes(self, role: Role) -> int:
        """Compulsory reads and writes of a role."""
        return self.compulsory_read_bytes(role) + self.compulsory_write_bytes(role)

    def _written_bytes(self, role: Role) -> dict[str, int]:
        """Bytes written per tensor name."""
        written: dict[str, int] = defaultdict(int)
        for operator in self:
            for tensor in operator.outputs:
                if tensor.role is role:
                    written[tensor.name] += tensor.nbytes
        return dict(written)

    def _named(self, names: Iterable[str]) -> tuple[Operator, ...]:
        return tuple(self._operators[name] for name in names)


def _name(operator: Operator | str) -> str:
    """Name of an operator given itself or its name."""
    return operator if isinstance(operator, str) else operator.name
