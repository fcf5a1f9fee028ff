"""Entry point: global options, commands, and what every failure looks like.

Exit codes: 0 fine; 1 a simulation or validation failed; 2 bad input, told in one line; 130
interrupted. Start-up stays fast: heavy libraries load inside the commands that need them.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim import __version__
from npusim.cli.catalog import models, systems
from npusim.cli.check import check, schema
from npusim.cli.compare import compare
from npusim.cli.explain import explain
from npusim.cli.explain_program import explain_program
from npusim.cli.export import export
from npusim.cli.inspect import inspect
from npusim.cli.memory import app as memory
from npusim.cli.op import op
from npusim.cli.output import complain
from npusim.cli.report import report
from npusim.cli.reproduce import reproduce
from npusim.cli.requests import app as requests
from npusim.cli.run import run
from npusim.cli.search import search
from npusim.cli.sweep import sweep
from npusim.cli.sweep_report import sweep_report
from npusim.cli.trace import import_, trace
from npusim.cli.validate import calibrate, validate
from npusim.cli.whatif import whatif
from npusim.errors import ConfigError, NpusimError, SimulationError
from npusim.paths import ENV_CONFIG_PATH

if TYPE_CHECKING:
    from collections.abc import Sequence

HELP_WIDTH = 100  # an example fits on a line
_INTERRUPT_AGAIN_S = 0.05  # by then the destructor is over
EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130

# typer exports the subclass for bad values only; its bases are what it raises for bad usage
_USAGE_ERRORS: tuple[type[Exception], ...] = typer.BadParameter.__mro__[1:3]

app = typer.Typer(
    name="npusim",
    help="Simulate transformer inference on NPUs that do not exist yet.",
    no_args_is_help=True,
    context_settings={"terminal_width": HELP_WIDTH},
    add_completion=False,
    rich_markup_mode=None,  # rich alone would take half of the start-up time
    pretty_exceptions_enable=False,
)
app.command("run")(run)
app.command("op")(op)
app.command("systems")(systems)
app.command("models")(models)
app.command("check")(check)
app.command("schema")(schema)
app.command("explain")(explain)
app.command("compare")(compare)
app.command("report")(report)
app.command("export")(export)
app.command("explain-program")(explain_program)
app.command("inspect")(inspect)
app.command("trace")(trace)
app.command("import")(import_)
app.add_typer(requests)
app.add_typer(memory)
app.command("sweep")(sweep)
app.command("search")(search)
app.command("sweep-report")(sweep_report)
app.command("whatif")(whatif)
app.command("reproduce")(reproduce)
app.command("validate")(validate)
app.command("calibrate")(calibrate)


def _print_version(is_asked: bool) -> None:
    """Print the version and stop."""
    if is_asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    config_path: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Folder with your own systems, workloads and models, searched before the "
            f"shipped ones and those of {ENV_CONFIG_PATH}. May be repeated.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 - acts in its callback
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print version."),
    ] = False,
) -> None:
    """Simulate transformer inference on NPUs that do not exist yet."""
    for folder in config_path or ():
        if not folder.is_dir():
            raise ConfigError("--config-path", "must name an existing folder", str(folder))
    if config_path:
        earlier = os.environ.get(ENV_CONFIG_PATH)
        parts = [*map(str, config_path), *([earlier] if earlier else [])]
        os.environ[ENV_CONFIG_PATH] = os.pathsep.join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : Sequence[str], optional
        Arguments without the program's name; None takes those of the process.

    Returns
    -------
    int
        Exit code.
    """
    sys.unraisablehook = _keep_interrupt
    try:
        code = app(args=argv, prog_name="npusim", standalone_mode=False)
        sys.stdout.flush()
    except SimulationError as error:
        return complain(str(error), EXIT_FAILED)
    except NpusimError as error:
        return complain(str(error), EXIT_BAD_INPUT)
    except _USAGE_ERRORS as error:
        return complain(_usage_text(error), EXIT_BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return complain("interrupted", EXIT_INTERRUPTED)
    except (BrokenPipeError, SystemExit):  # typer exits when a pipe breaks
        _drop_output()
        return 0
    if code == EXIT_INTERRUPTED:  # how typer reports an interrupt
        return complain("interrupted", code)
    return code if isinstance(code, int) else 0


def _keep_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that fell into a destructor, where Python drops every exception."""
    if unraisable.exc_type is KeyboardInterrupt:
        threading.Timer(_INTERRUPT_AGAIN_S, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(unraisable)


def _drop_output() -> None:
    """Nobody reads stdout any more (`head` has seen enough): let its last flush succeed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage_text(error: Exception) -> str:
    """What is wrong with the arguments, and where to read more."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "npusim"
    text = getattr(error, "format_message", error.__str__)().strip()
    if text.startswith("Usage:"):  # no arguments at all: the message is the whole help
        return f"a command is needed\n\n{text}"
    return f"{text.rstrip('.')}; see {command} --help"
