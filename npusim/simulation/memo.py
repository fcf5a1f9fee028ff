"""Executions by what decides them, so that what a change does not touch is not run again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from npusim.simulation.execute import Executed, execute, target_of
from npusim.simulation.memories import memory_identity

if TYPE_CHECKING:
    from npusim.config.run_spec import RunSpec
    from npusim.engine import MemoryKernel
    from npusim.program import Program

    Key = tuple[str, str, str]

#: commands of the executions kept at most, about half a kilobyte each
MAX_COMMANDS = 400_000


class Memo:
    """Runs programs as `execute` does; gives an earlier execution of the same program back.

    An execution is decided by the program, the memory system and the simulation settings; the key
    is all of them. The executions used longest ago go first.
    """

    def __init__(self, max_commands: int = MAX_COMMANDS) -> None:
        self._max_commands = max_commands
        self._found: OrderedDict[Key, Executed] = OrderedDict()
        self.hits = 0

    def __call__(
        self, program: Program, spec: RunSpec, memory: MemoryKernel | None = None
    ) -> Executed:
        """Run the program, or give back what it gave before; see `Execute`."""
        if memory is not None:  # a memory of its own may be in any state
            return execute(program, spec, memory)
        identity = memory_identity(spec.system, target_of(spec))
        key = (program.digest(), identity, spec.simulation.model_dump_json())
        if key in self._found:
            self.hits += 1
        else:
            self._found[key] = execute(program, spec)
        self._found.move_to_end(key)
        while len(self._found) > 1 and self._commands() > self._max_commands:
            self._found.popitem(last=False)
        return self._found[key]

    def __len__(self) -> int:
        return len(self._found)

    def _commands(self) -> int:
        return sum(len(executed.program) for executed in self._found.values())
