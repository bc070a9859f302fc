"""Speed beside other toolkits: what `s2s bench` measures. Nothing else of the package imports it."""
