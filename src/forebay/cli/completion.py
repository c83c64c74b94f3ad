"""`forebay completion`: scripts by which shells complete what is typed after `forebay`.

The scripts know nothing of our verbs: they ask the command itself (`forebay completion offer`), so
that they fit every version. Its answer begins with a line that says what follows: `words`,
`prefixes` (no blank after them), or `files`, which is left to the shell.
"""

from __future__ import annotations

import contextlib
import io
from typing import Annotated

import typer
import typer.main

from forebay.cli.completing import Offer, Offers, after_word_break, offers_for, split_line
from forebay.cli.console import tell

completion_app = typer.Typer(
    name="completion",
    help="Print a script by which your shell completes what you type.",
    epilog="For one session of bash: source <(forebay completion bash). To stay: "
    "forebay completion bash > ~/.local/share/bash-completion/completions/forebay; "
    'forebay completion zsh > "${fpath[1]}/_forebay"; '
    "forebay completion fish > ~/.config/fish/completions/forebay.fish.",
    no_args_is_help=True,
)

BASH = r"""
_forebay_completion() {
    local line kind="" IFS=$'\n'
    COMPREPLY=()
    while read -r line; do
        if [ -z "$kind" ]; then kind="$line"; else COMPREPLY+=("$line"); fi
    done < <("$1" completion offer bash -- "${COMP_LINE:0:COMP_POINT}" ${2+"$2"} 2>/dev/null)
    case "$kind" in
        prefixes) compopt -o nospace 2>/dev/null ;;
        files) compopt -o default 2>/dev/null || COMPREPLY=($(compgen -f -- "$2")) ;;
    esac
    return 0
}
complete -F _forebay_completion forebay
"""

ZSH = r"""
#compdef forebay
_forebay() {
    local -a reply offers
    reply=("${(@f)$("${(Q)words[1]}" completion offer zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    offers=("${(@)reply[2,-1]}")
    case "${reply[1]}" in
        files) _files ;;
        prefixes) _describe -V forebay offers -S '' ;;
        words) _describe -V forebay offers ;;
    esac
}
if [ "${funcstack[1]}" = "_forebay" ]; then
    _forebay "$@"
else
    compdef _forebay forebay
fi
"""  # noqa: E501 - one command

FISH = r"""
function __forebay_offers
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    test -n "$current"; or set current ""
    set -l reply ($typed[1] completion offer fish -- $typed[2..-1] "$current" 2>/dev/null)
    if test "$reply[1]" = files
        __fish_complete_path "$current"
    else if set -q reply[2]
        printf '%s\n' $reply[2..-1]
    end
end
complete -c forebay -f -a '(__forebay_offers)'
"""


@completion_app.command()
def bash() -> None:
    """Print the script for bash."""
    tell(BASH.strip())


@completion_app.command()
def zsh() -> None:
    """Print the script for zsh."""
    tell(ZSH.strip())


@completion_app.command()
def fish() -> None:
    """Print the script for fish."""
    tell(FISH.strip())


@completion_app.command(hidden=True)
def offer(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")],
    typed: Annotated[
        list[str],
        typer.Argument(
            help="The words after the command; for bash the line, and what is replaced."
        ),
    ],
) -> None:
    """Say what could be typed next; the scripts ask this."""
    words = split_line(typed[0])[1:] if shell == "bash" else typed
    found = Offers()
    # Nothing may be said to somebody who is in the middle of a line.
    with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
        found = _found(words)
    if found.are_files:
        tell("files")
    elif found.offers:
        are_prefixes = all(each.value.endswith("=") for each in found.offers)
        replaced = typed[1] if shell == "bash" and len(typed) > 1 else None
        lines = (_written(each, shell, words[-1], replaced) for each in found.offers)
        tell("\n".join(["prefixes" if are_prefixes else "words", *lines]))


def _found(words: list[str]) -> Offers:
    from forebay.cli.main import app

    return offers_for(typer.main.get_command(app), words)


def _written(each: Offer, shell: str, typed: str, replaced: str | None) -> str:
    help_ = " ".join(each.help.split())
    match shell:
        case "bash":
            return after_word_break(each.value, typed, replaced)
        case "zsh":
            escaped = each.value.replace("\\", "\\\\").replace(":", "\\:")
            return f"{escaped}:{help_}" if help_ else escaped
        case _:
            return f"{each.value}\t{help_}" if help_ else each.value
