"""Translation and classification over HTTP: `s2s serve`.

A request becomes sentences (`text.parts`), which wait in one queue for one thread that computes (`queue`);
`service` joins their translations again. `api`, `libretranslate` and `page` are what clients see of it; `guard`
stands in front of them all, and `server` owns the socket. It knows models as `Translator` and `Classifier` alone.
"""
