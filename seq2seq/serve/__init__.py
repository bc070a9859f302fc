"""The server of `s2s serve`: translation and classification over HTTP.

A request is split into sentences (`text.parts`), which wait in one queue for one thread that computes (`queue`);
`service` joins their translations. Clients use the interfaces of `v1`, `libretranslate` and `page`; `guard` checks
every request before them, and `server` owns the socket. Models are known only as `Translator` and `Classifier`.
"""
