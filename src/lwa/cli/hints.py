"""Errors of the library in the words of the command line: `Pass subset_size=100` becomes `Pass --subset-size 100`."""

import re

OPTIONS = {
    "budget": "--budget",
    "chains": "--chains",
    "checkpoint": "--out",
    "draws": "--draws",
    "epsilon": "--epsilon",
    "exact": "--exact",
    "family": "--family",
    "keep": "--keep",
    "link": "--link",
    "missing": "--missing",
    "offset": "--offset",
    "overwrite": "--overwrite",
    "seed": "--seed",
    "subset_size": "--subset-size",
    "target": "--target",
    "trials": "--trials",
    "tune": "--tune",
    "weights": "--weights",
}
"""Arguments of the library, and the options that stand for them."""
ARGUMENT = re.compile(rf"\b({'|'.join(OPTIONS)})(?:=True\b|=(?=\s)|(=)|(?= [<>]=))")
CALLS = {
    re.compile(r"lwa\.rows\.convert\(('[^']*'|\w+), ('[^']*'), overwrite=True\)"): r"lwa convert \1 \2 --overwrite",
    re.compile(r"lwa\.resume\('([^']*)', model, data\)"): r"lwa resume \1",
}
"""Calls of the library, and the commands that stand for them."""


def use_command_words(message: str) -> str:
    """Return a message of the library with commands and options in place of calls and arguments."""
    for call, command in CALLS.items():
        message = call.sub(command, message)
    return ARGUMENT.sub(lambda found: OPTIONS[found[1]] + (" " if found[2] else ""), message)
