"""`pgo-collector settings`, and the settings in the help of other commands."""

from __future__ import annotations

from pgo_collector.settings import BASIC, PREFIX, SHOWN, Settings, followers_of


def basic_settings() -> str:
    """Return the settings that matter, for the help of commands."""
    shown = "\n".join(f"  {PREFIX}{name.upper():<22} {_in_short(name)}" for name in BASIC)
    others = len(SHOWN) - len(BASIC)
    return (
        f"settings that matter, from the environment:\n{shown}\n\n"
        f"`pgo-collector settings` lists these and {others} more, with their defaults."
    )


def _in_short(name: str) -> str:
    """Return the first sentence of a setting's help."""
    return f"{Settings.fields[name].description}".partition(". ")[0].rstrip(".")


def list_settings() -> None:
    """Print all settings with their defaults."""
    for name in (*BASIC, *(name for name in SHOWN if name not in BASIC)):
        field = Settings.fields[name]
        is_stated = field.default_factory is None and field.default is not None
        default = f" Default: {field.default}" if is_stated else ""
        print(f"{PREFIX}{name.upper()}\n    {field.description}{default}")
        if followers := followers_of(name):
            print("    Sets too, unless they are set:", *followers, sep="\n      ")
