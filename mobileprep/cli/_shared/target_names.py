"""Names of targets for shells to complete, read off recipes by awk: no Python starts for it."""

from __future__ import annotations

from typing import Final

DEST: Final = "target"
"""The argument whose values they are."""

# The keys below each `targets:`, in the block style that recipes are written in.
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
"""What gives the names, by shell."""

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
"""The functions behind it, by shell: they look at the recipes that the command names so far.

bash and zsh give the words as they are typed, quoted.
"""
