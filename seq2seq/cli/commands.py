"""The class of every command: an option that is not repeatable is refused the second time.

Otherwise click takes the last value and drops the others without a word. A `Group` has commands of this class.
"""

from collections import Counter
from pathlib import Path

import click

from seq2seq.errors import did_you_mean


class Command(click.Command):
    """A command whose options are given once, unless they are repeatable."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Check the typed arguments; click calls it."""
        if not context.resilient_parsing:
            _, _, given = self.make_parser(context).parse_args(list(arguments))
            for parameter, count in Counter(given).items():
                if isinstance(parameter, click.Option) and count > 1 and not (parameter.multiple or parameter.is_eager):
                    raise click.UsageError(f"{parameter.opts[-1]} is given {count} times; give it once", context)
        return super().parse_args(context, arguments)


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
