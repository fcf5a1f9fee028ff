"""Readers of foreign files; each makes an `OperatorTrace`."""

from npusim.workload.importers.detect import KINDS, import_file
from npusim.workload.importers.imported import Imported

__all__ = ["KINDS", "Imported", "import_file"]
