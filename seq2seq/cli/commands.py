"""The class of every command: an option that is not repeatable is refused the second time, and text on standard input
is named where the command does not read it.

Otherwise click takes the last value and drops the others, and the text is lost, without a word. A `Group` has commands
of this class.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import click

from seq2seq.cli import options
from seq2seq.errors import did_you_mean


class Command(click.Command):
    """A command whose options are given once, unless they are repeatable.

    Those with `reads_input` may read text from standard input, and judge alone what is on it.
    """

    def __init__(self, *arguments: Any, reads_input: bool = False, **settings: Any):
        super().__init__(*arguments, **settings)
        self.reads_input = reads_input

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Check the typed arguments; click calls it."""
        if not context.resilient_parsing:
            _, _, given = self.make_parser(context).parse_args(list(arguments))
            for parameter, count in Counter(given).items():
                if isinstance(parameter, click.Option) and count > 1 and not (parameter.multiple or parameter.is_eager):
                    raise click.UsageError(f"{parameter.opts[-1]} is given {count} times; give it once", context)
        return super().parse_args(context, arguments)

    def invoke(self, context: click.Context) -> Any:
        """Run the command; click calls it."""
        if not self.reads_input:
            options.name_unread_input(f"{context.command_path} reads files", *options.paths_given())
        return super().invoke(context)


class Group(click.Group):
    """A group whose commands are of the same class."""

    command_class = Command


class GroupWithDefault(Group):
    """A group whose first command is meant where none is named."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Put the name of the first command in front of arguments that begin with none; click calls it."""
        first = arguments[0] if arguments else ""
        is_other = first not in self.commands and first not in self.get_help_option_names(context)
        is_misspelt = bool(did_you_mean(first, self.commands)) and not Path(first).exists()
        if is_other and not is_misspelt and not context.resilient_parsing:
            arguments = [next(iter(self.commands)), *arguments]
        return super().parse_args(context, arguments)
