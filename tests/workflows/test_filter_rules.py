"""The rules of `s2s filter`: each leaves out what it names, and hardly anything of real corpora."""

import gzip
import unicodedata
from collections import Counter
from itertools import islice

import pytest

from seq2seq.data.examples import Pair
from seq2seq.workflows.filter.rules import PairLimits, PairRules

GOOD = ("The old man walks his dog through the park.", "Der alte Mann geht mit seinem Hund durch den Park.")
LEFT_OUT = {
    "empty": ("A man.", "   "),
    "no words": ("A man.", "..."),
    "damaged": ("A caf\ufffd.", "Ein Café."),
    "copy": ("Tom Miller, Boston!", "tom miller boston"),
    "length": ("A man. " * 200, "Ein Mann. " * 200),
    "ratio": ("Yes, of course we will do this tomorrow.", "Ja, klar."),
    "digits": ("It costs 300 euros.", "Das kostet 30 Euro."),
    "repetition": ("Chapter one ........ page", "Kapitel eins Seite"),
    "markup": ("Press <b>Enter</b>.", "Drücke <b>Enter."),
    "script": ("Hello, Anna.", "Привет, Анна."),
    "language": (GOOD[0], "The old man walks with his dog through a park."),
}
KEPT = {
    "good": GOOD,
    "numbers that are written differently": ("It costs 1,234.50 euros.", "Das kostet 1.234,50 Euro."),
    "dates": ("Tom was born on May 5, 2010.", "Tom wurde am 5. Mai 2010 geboren."),
    "numbers in other digits": ("It costs 300 yen, Tom.", "Das kostet ３００ Yen, Tom."),
    "a year and a number": ("In 2019 300 people came.", "2019 kamen 300 Leute."),
    "a name and a number": ("The iPhone 15 128 GB costs less.", "Das iPhone 15 mit 128 GB kostet weniger."),
    "numbers with other spaces": ("Lines 1,2,3 are new.", "Die Zeilen 1, 2, 3 sind neu."),
    "raised digits": ("The house of Tom has 50 m².", "Das Haus von Tom hat 50 m2."),
    "lowered digits": ("3 trees bind CO2 here.", "3 Bäume binden hier CO₂."),
    "a fraction": ("Take ½ of the cup and 3 eggs.", "Nimm ½ der Tasse und 3 Eier."),
    "a number in words": ("He is 3.", "Er ist drei."),
    "three dots": ("Well...", "Nun ja..."),
    "signs that are no tags": ("If a < b, then b > a.", "Wenn a < b, dann b > a."),
    "tags in another order": ("<b>A</b> big <i>man</i>.", "Ein <i>großer</i> <b>Mann</b>."),
    "a name in another script": ("The word логос is Greek.", "Das Wort логос ist griechisch."),
    "short texts": ("No.", "Nein, das tue ich nicht."),
    "a name in both": ("Tom Miller lives here.", "Hier wohnt Tom Miller."),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_each_rule_leaves_out_what_it_names(name):
    rules = PairRules(("en", "de"), PairLimits())
    assert rules.rejects(Pair(*LEFT_OUT[name])) == name
    assert [rule.name for rule in rules.all] == list(LEFT_OUT)
    if name not in ("script", "language"):
        swapped = PairRules(("de", "en"), PairLimits()).rejects(Pair(*LEFT_OUT[name][::-1]))
        assert swapped == name, "the rules do not depend on the side"


@pytest.mark.parametrize("name", KEPT)
def test_good_pairs_are_kept(name):
    assert PairRules(("English", "deu"), PairLimits()).rejects(Pair(*KEPT[name])) is None


@pytest.mark.parametrize("digit", "²³¹⁴⁹⁰₀₂₉")
def test_a_digit_is_the_same_where_it_is_raised_or_lowered_and_no_other(digit):
    rules, plain = PairRules(("en", "de"), PairLimits()), unicodedata.normalize("NFKC", digit)
    source = f"The value of a{digit} is 50 in this case."
    for other in "0123456789":
        found = rules.rejects(Pair(source, f"Der Wert von a{other} ist in diesem Fall 50."))
        assert found == (None if other == plain else "digits")


@pytest.mark.parametrize("dash", "-‐‑‒–—−")
def test_numbers_are_the_same_whatever_dash_is_between_them(dash):
    rules, target = PairRules(("en", "de"), PairLimits()), "Er lebte dort von 1990-1995, in der Nummer 12-14."
    source = "He lived there from 1990-1995, in number 12-14."
    assert rules.rejects(Pair(source.replace("-", dash), target)) is None
    assert rules.rejects(Pair(target, source.replace("-", dash))) == rules.rejects(Pair(target, source))
    assert rules.rejects(Pair(source.replace("-", dash).replace("1990", "1991"), target)) == "digits"


def test_limits_are_those_of_the_user_and_unknown_languages_are_not_judged():
    assert PairRules(("en", "de"), PairLimits(max_length=20)).rejects(Pair(*GOOD)) == "length"
    assert PairRules(("en", "de"), PairLimits(max_ratio=10)).rejects(Pair(*LEFT_OUT["ratio"])) is None
    for name in ("script", "language"):
        assert PairRules((None, "Klingon"), PairLimits()).rejects(Pair(*LEFT_OUT[name])) is None


def test_a_character_of_a_script_without_spaces_counts_twice():
    pair = Pair("I would like to go to the station tomorrow.", "明日駅に行きたいのですが。")
    assert PairRules(("en", "ja"), PairLimits()).rejects(pair) is None


@pytest.mark.parametrize(
    ("names", "most"), [(("tatoeba/test.en", "tatoeba/test.de"), 2), (("multi30k/val.en", "multi30k/val.fr"), 2)]
)
def test_hardly_any_pair_of_real_corpora_is_left_out(names, most, real_data):
    sides = [gzip.open(real_data / f"{name}.gz", "rt", encoding="utf-8") for name in names]
    rules = PairRules((names[0][-2:], names[1][-2:]), PairLimits())
    found = Counter(
        rules.rejects(Pair(*(line.rstrip("\n") for line in lines))) for lines in islice(zip(*sides, strict=True), 1000)
    )
    assert found.total() - found[None] <= most, found
