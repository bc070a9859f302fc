"""The class of every command, which names input that click would drop silently.

An option that is not repeatable is refused the second time; click would take the last value. A warning is logged if
there is text on standard input that the command does not read. A `Group` has commands of this class.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import click

from seq2seq.cli import options
from seq2seq.cli.outputs import paths_given
from seq2seq.errors import did_you_mean


class Command(click.Command):
    """A command whose options may be given only once, unless they are repeatable.

    A command with `reads_input` may read text from standard input, and checks it itself.
    """

    def __init__(self, *arguments: Any, reads_input: bool = False, **settings: Any):
        super().__init__(*arguments, **settings)
        self.reads_input = reads_input

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Refuse options that are given several times; click calls this method."""
        if not context.resilient_parsing:
            _, _, given = self.make_parser(context).parse_args(list(arguments))
            for parameter, count in Counter(given).items():
                if isinstance(parameter, click.Option) and count > 1 and not (parameter.multiple or parameter.is_eager):
                    raise click.UsageError(f"{parameter.opts[-1]} is given {count} times; give it once", context)
        return super().parse_args(context, arguments)

    def invoke(self, context: click.Context) -> Any:
        """Run the command, and warn of unread standard input; click calls this method."""
        if not self.reads_input:
            options.name_unread_input(f"{context.command_path} reads files", *paths_given())
        return super().invoke(context)


class Group(click.Group):
    """A group whose commands are of the same class."""

    command_class = Command


class GroupWithDefault(Group):
    """A group whose first command runs if no command is named."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Put the name of the first command before arguments that begin with no command; click calls this method."""
        first = arguments[0] if arguments else ""
        is_other = first not in self.commands and first not in self.get_help_option_names(context)
        is_misspelt = bool(did_you_mean(first, self.commands)) and not Path(first).exists()
        if is_other and not is_misspelt and not context.resilient_parsing:
            arguments = [next(iter(self.commands)), *arguments]
        return super().parse_args(context, arguments)
