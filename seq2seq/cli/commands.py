"""The class of every command: an option that is not repeatable is refused the second time.

Otherwise click takes the last value and drops the others without a word.
"""

from collections import Counter

import click


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
