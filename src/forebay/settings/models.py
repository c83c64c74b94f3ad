"""`[models]`: other names for models, and what stands in for one that is missing."""

from collections.abc import Iterable, Mapping

from pydantic import Field, model_validator

from forebay.settings.errors import SettingsProblem, refusals
from forebay.settings.section import Names, Section, Text


class ModelsSettings(Section):
    """Other names for models, and what stands in for one that is missing."""

    aliases: Mapping[Text, Text] = Field(default={})
    """Names that clients may use, and the model each stands for: { "gpt-4o" = "llama3.1:8b" }. An
    alias may stand for another alias, but not for itself."""

    fallbacks: Mapping[Text, Names] = Field(default={})
    """Models to take, in order, when no node knows or can serve the one asked for:
    { "llama3.1:70b" = ["llama3.1:8b"] }. They must not lead back to where they started."""

    @model_validator(mode="after")
    def _leads_somewhere(self) -> "ModelsSettings":
        aliases = {name: (target,) for name, target in self.aliases.items()}
        problems = list(_loops("aliases", aliases))
        if not problems:
            steps = {
                name: aliases.get(name, ()) + self.fallbacks.get(name, ())
                for name in (*self.aliases, *self.fallbacks)
            }
            problems = list(_loops("fallbacks", steps))
        if problems:
            raise refusals(problems)
        return self


def _loops(field: str, steps: Mapping[str, tuple[str, ...]]) -> Iterable[SettingsProblem]:
    """Yield a problem for the first loop there is; no recursion, for a chain may be long."""
    done: set[str] = set()
    for start in steps:
        path: dict[str, None] = {}  # in order of the walk
        stack = [(start, True)]
        while stack:
            name, entering = stack.pop()
            if not entering:
                del path[name]
                done.add(name)
            elif name in path:
                loop = [*list(path)[list(path).index(name) :], name]
                yield SettingsProblem(
                    field, f"go in a loop: {' -> '.join(loop)}", "remove one of these steps"
                )
                return
            elif name not in done:
                path[name] = None
                stack.append((name, False))
                stack.extend((target, True) for target in reversed(steps.get(name, ())))
