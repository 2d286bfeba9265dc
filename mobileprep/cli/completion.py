"""The verb ``completion``: prints a script with which shells complete verbs, flags, and files."""

from __future__ import annotations

import argparse
from typing import Final

from mobileprep.cli._shared.originals import DROP_INS
from mobileprep.cli._shared.telling import telling_arguments
from mobileprep.cli.verb import Group, verb
from mobileprep.errors import UnsupportedError

SHELLS: Final = ("bash", "zsh", "fish")
_FOLDERS: Final = frozenset({"DIR"})
_CHAIN: Final = "transforms"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="Shell that reads the script")


@verb(
    "completion",
    Group.MAINTENANCE,
    "Print a shell completion script for bash, zsh, or fish",
    _arguments,
    "mobileprep completion bash > ~/.local/share/bash-completion/completions/mobileprep",
)
def run(args: argparse.Namespace) -> int:
    """Print the completion script.

    Raises:
        UnsupportedError: shtab is not installed.
    """
    try:
        import shtab
    except ImportError as error:
        message = "completion scripts need the package shtab, which is not installed"
        raise UnsupportedError(message, "pip install 'mobileprep[completion]'") from error
    from mobileprep.transforms.base import transform_names

    parser = _every_verb()
    for action in _values(parser):
        if action.dest == _CHAIN:
            # A chain with parameters is one word for the shell, so only its start completes.
            action.choices = transform_names()
        elif action.dest == DEST:
            action.complete = COMPLETED_BY  # type: ignore[attr-defined]
        elif action.choices is None:
            kind = shtab.DIRECTORY if action.metavar in _FOLDERS else shtab.FILE
            action.complete = kind  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=args.shell, preamble=FUNCTIONS[args.shell]))
    return 0


def _every_verb() -> argparse.ArgumentParser:
    """Return one parser for all verbs; ``main`` does not use it because it is slow to create."""
    from mobileprep.cli.main import find_verb, verb_names
    from mobileprep.cli.schema import schema_names

    parser = argparse.ArgumentParser(prog="mobileprep")
    parser.add_argument("--version", action="store_true", help="Print the version")
    below = parser.add_subparsers()
    for command in map(find_verb, verb_names()):
        one = below.add_parser(command.name, help=command.summary)
        command.arguments(one)
        telling_arguments(one, letters=command.name not in DROP_INS)
        if command.name == "schema":
            one._get_positional_actions()[0].choices = schema_names()
    below.add_parser("help", help="Print the help of a verb").add_argument(
        "verb", nargs="?", choices=verb_names(), help="Verb"
    )
    return parser


def _values(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of all verbs that take a value."""
    actions: list[argparse.Action] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb_parser in action.choices.values():
                actions += _values(verb_parser)
        elif action.nargs != 0:
            actions.append(action)
    return actions


DEST: Final = "target"
"""The argument whose values are target names."""

# Prints the keys below each `targets:` of a recipe in block style.
_AWK: Final = (
    "/^ *targets: *(#.*)?$/ { match($0, /^ */); at = RLENGTH; first = -1; on = 1; next } "
    "!on || /^ *(#.*)?$/ { next } "
    "{ match($0, /^ */) } "
    "RLENGTH <= at { on = 0; next } "
    "first < 0 { first = RLENGTH } "
    "RLENGTH == first && match($0, /[A-Za-z0-9][A-Za-z0-9._-]*:/) "
    "{ print substr($0, RSTART, RLENGTH - 1) }"
)
_OF_WORDS: Final = f"""\
_mobileprep_targets() {{
  local word
  for word in "$@"; do
    [ -d "$word" ] && word="$word/recipe.yaml"
    case "$word" in
      *.yaml|*.yml) [ -f "$word" ] && awk '{_AWK}' "$word" ;;
    esac
  done
}}
"""

COMPLETED_BY: Final = {
    "bash": "_mobileprep_target_names",
    "zsh": "_mobileprep_target_names",
    "fish": "(_mobileprep_targets)",
}
"""The function that lists target names, by shell."""

FUNCTIONS: Final = {
    "bash": _OF_WORDS
    + r"""
_mobileprep_target_names() {
  local quoting=$'["\'\\\\]'
  compgen -W "$(_mobileprep_targets "${COMP_WORDS[@]//$quoting/}")" -- "$1"
}
""",
    "zsh": _OF_WORDS
    + """\
_mobileprep_target_names() {
  compadd -- ${(f)"$(_mobileprep_targets ${(Q)words})"}
}
""",
    "fish": f"""\
function _mobileprep_targets
  for word in (commandline -opc)
    test -d $word; and set word $word/recipe.yaml
    string match -qr '[.]ya?ml$' -- $word; and test -f $word; and awk '{_AWK}' $word
  end
end
""",
}
"""Functions that list the targets of the recipes on the command line, by shell.

bash and zsh pass the words with their quotes.
"""
