"""One typed door to numba: compiled lazily, cached on disk, stale caches impossible.

numba keys a cached function by the file that defines it and misses edits in the functions it
calls. `entry` therefore stamps its cache with the content of the whole memory package. Only the
few functions that Python calls are entries; the others compile into them. The stock locator keeps
the cache beside the source or, in a read-only install, in the user's cache directory
(`NUMBA_CACHE_DIR` overrides both); files appear by atomic rename, so N workers may start at once.
"""

from __future__ import annotations

import hashlib
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    from npusim.memory.layout import Words

F = TypeVar("F", bound="Callable[..., Any]")


@cache
def source_hash() -> str:
    """SHA-256 of every source file of the memory package, in hexadecimal."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def njit(function: F) -> F:
    """Compile for use inside other compiled functions; not cached by itself."""
    return cast("F", numba.njit(nogil=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """As `njit`, and always merged into its callers.

    For what runs once or more per burst: a call costs numba 3 to 5 ns, and merged code keeps words
    of the state in registers. Everything rare stays out, it would double the compile time.
    """
    return cast("F", numba.njit(nogil=True, error_model="numpy", forceinline=True)(function))


def entry(function: F) -> F:
    """Compile a function that Python calls; cached until any source of the package changes."""
    try:
        compiled = numba.njit(nogil=True, error_model="numpy", cache=True)(function)
    except RuntimeError as error:  # neither beside the source nor in the user's cache directory
        warnings.warn(
            f"compiled code is not kept between runs ({error}); NUMBA_CACHE_DIR names a folder",
            RuntimeWarning,
            stacklevel=2,
        )
        compiled = numba.njit(nogil=True, error_model="numpy")(function)
    index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if index is not None:  # the stamp is private to numba; without it the stock check remains
        index._source_stamp = source_hash()
    return cast("F", compiled)


if TYPE_CHECKING:

    def words_at(address: int) -> Words:
        """View an address as unchecked int64 words."""

    def upper_half(a: int, b: int) -> int:
        """Upper 64 bits of the 128-bit product of two words taken as unsigned."""

else:

    @intrinsic
    def words_at(_context, _address):
        """View an address as unchecked int64 words.

        Inside the kernel tables travel as bare pointers: numba's array views cost seven words per
        call, reference counts and a sign check per index.
        """
        pointer = numba.types.CPointer(numba.types.int64)

        def generate(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return pointer(numba.types.int64), generate

    @intrinsic
    def upper_half(_context, _a, _b):
        """Upper 64 bits of the 128-bit product of two words taken as unsigned."""
        word = numba.types.int64

        def generate(_context, builder, _signature, arguments):
            narrow = arguments[0].type
            wide = type(narrow)(128)
            a, b = (builder.zext(argument, wide) for argument in arguments)
            return builder.trunc(builder.lshr(builder.mul(a, b), wide(64)), narrow)

        return word(word, word), generate
