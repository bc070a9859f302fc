"""Every command of `s2s` that can be run, for tests of the whole class of commands."""

import importlib

import click

from seq2seq import cli


def commands() -> dict[tuple[str, ...], click.Command]:
    """Every command that can be run, by what is typed for it."""
    found: dict[tuple[str, ...], click.Command] = {}
    for verb in cli.VERBS:
        command = importlib.import_module(f"seq2seq.cli.{verb}").command
        if isinstance(command, click.Group):
            found |= {(verb, name): sub for name, sub in command.commands.items()}
        else:
            found[verb,] = command
    return found
