"""The benchmarks of `s2s bench`, which measure speed next to other toolkits. Only the command imports this folder."""
