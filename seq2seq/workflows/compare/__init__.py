"""Several systems on one test set: scores, tests of all pairs, views, sentences, and a page of all of it."""
