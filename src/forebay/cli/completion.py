"""`forebay completion`: the scripts by which shells complete what is typed after `forebay`.

Typer ships the machinery and the scripts of zsh and fish; the values of a parameter come from its
`autocompletion` (`offers.py`). The script of bash is our own: bash ends a word at `:` and `=`, and
Typer's would take `http://127.0.0.1:7800` or `llama3:8b` for several words.
"""

from __future__ import annotations

import typer
from typer._completion_shared import get_completion_script

from forebay.cli.output.console import tell

VARIABLE = "_FOREBAY_COMPLETE"
"""As Typer derives it from the program's name."""

completion_app = typer.Typer(
    name="completion",
    help="Print the completion script for your shell.",
    epilog="For one session of bash: source <(forebay completion bash). To stay: "
    "forebay completion bash > ~/.local/share/bash-completion/completions/forebay; "
    'forebay completion zsh > "${fpath[1]}/_forebay"; '
    "forebay completion fish > ~/.config/fish/completions/forebay.fish.",
    no_args_is_help=True,
)

# Typer splits COMP_WORDS as a shell does, so the whole line goes there; COMP_CWORD -1 is its last
# word. Bash replaces only `$2`, so the part of the word before it is cut off what is offered.
BASH = r"""
_forebay_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" replaced="${2#[\"\']}" typed value
    typed="${line##*[[:space:]]}"
    typed="${typed#[\"\']}"
    [[ $typed == --*=* ]] && typed="${typed#*=}"
    [[ $line == *[[:space:]] ]] && line+="''"
    COMPREPLY=()
    while IFS= read -r value; do
        [[ -n $value ]] && COMPREPLY+=("${value#"${typed%"$replaced"}"}")
    done < <(COMP_WORDS="$line" COMP_CWORD=-1 _FOREBAY_COMPLETE=complete_bash "$1" 2>/dev/null)
    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o default -F _forebay_completion forebay
"""

# zsh loads a file of `fpath` at the first Tab, and calls nothing of it by itself.
ZSH_AUTOLOAD = '\n[ "${funcstack[1]}" = "_forebay" ] && _forebay_completion "$@"'


@completion_app.command()
def bash() -> None:
    """Print the script for bash."""
    tell(BASH.strip())


@completion_app.command()
def zsh() -> None:
    """Print the script for zsh."""
    tell(_shipped("zsh") + ZSH_AUTOLOAD)


@completion_app.command()
def fish() -> None:
    """Print the script for fish."""
    tell(_shipped("fish"))


def _shipped(shell: str) -> str:
    return get_completion_script(prog_name="forebay", complete_var=VARIABLE, shell=shell)
