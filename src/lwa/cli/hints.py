"""Errors of the library in the words of the command line: `Pass subset_size=100` becomes `Pass --subset-size 100`."""

import re

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


def use_command_words(message: str) -> str:
    """Return a message of the library with commands and options in place of calls and arguments."""
    for call, command in COMMAND_FOR.items():
        message = call.sub(command, message)
    return ARGUMENT.sub(lambda found: OPTION_FOR[found[1]] + (" " if found[2] else ""), message)
