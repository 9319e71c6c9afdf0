"""The command line: the app, its commands, and how it reports errors."""

import gc
import re
from typing import NoReturn

import typer

from lwa.cli.compare import compare
from lwa.cli.convert import convert
from lwa.cli.demo import demo
from lwa.cli.fit import fit
from lwa.cli.plan import plan
from lwa.cli.report import report
from lwa.cli.resume import resume
from lwa.cli.summary import summary
from lwa.cli.watch import watch

COMMANDS = (demo, fit, resume, watch, summary, report, plan, convert, compare)
"""In the order of `lwa --help`. Importing them loads neither JAX nor NumPy."""
SAME_NAME = (
    "budget chains draws epsilon exact family keep link missing offset overwrite seed subset_size target trials tune "
    "weights"
)
OPTION_FOR = {name: f"--{name.replace('_', '-')}" for name in SAME_NAME.split()} | {"checkpoint": "--out"}
"""The option that stands for each argument of the library."""
ARGUMENT = re.compile(rf"\b({'|'.join(OPTION_FOR)})(?:=True\b|=(?=\s)|(=)|(?= [<>]=))")
COMMAND_FOR = {
    re.compile(r"lwa\.rows\.convert\(('[^']*'|\w+), ('[^']*'), overwrite=True\)"): r"lwa convert \1 \2 --overwrite",
    re.compile(r"lwa\.resume\('([^']*)', model, data\)"): r"lwa resume \1",
}
"""The command that stands for each call of the library."""

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for command in COMMANDS:
    app.command()(command)


@app.callback()
def lwa() -> None:
    """Bayesian inference on tall data at a fixed cost per step.

    Start with lwa demo, or with lwa fit 'y ~ x' table.csv.
    """


def main() -> None:
    """Run a command and exit. An error of lwa is one line on standard error and exit code 2, never a traceback."""
    from lwa.errors import LwaError, Terminated, out_of_memory
    from lwa.storage.cache import keep_programs

    try:
        with keep_programs():
            app()
    except LwaError as error:
        exit_with(use_command_words(str(error)), 2)
    except Terminated as ended:
        exit_with(str(ended), 143)
    except Exception as error:
        if not out_of_memory(error):
            raise
        exit_with(
            f"Out of memory: {error}. Pass a smaller --subset-size or fewer --chains, or close other programs. A run "
            "that had begun is saved: lwa resume continues it.",
            2,
        )
    finally:
        gc.freeze()  # else the interpreter looks through all that was imported before it ends: half a second


def exit_with(message: str, code: int) -> NoReturn:
    """Print one line on standard error and exit."""
    typer.echo(f"lwa: {message}", err=True)
    raise SystemExit(code) from None


def use_command_words(message: str) -> str:
    """Return a message of the library as the command line says it: `subset_size=100` becomes `--subset-size 100`."""
    for call, command in COMMAND_FOR.items():
        message = call.sub(command, message)
    return ARGUMENT.sub(lambda found: OPTION_FOR[found[1]] + (" " if found[2] else ""), message)
