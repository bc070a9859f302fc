"""The classes of words that templates draw from: the tables of lexicon.py and phrases.py, read into items.

`CLASSES` maps the name of a slot to its items; `draw_slots` picks one for each slot of a template.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator

import lexicon
import phrases
from grammar import Action, Adjective, Auxiliary, Item, Job, Noun, Person, Word, past_form, slot_names, third_person

PLURAL_ONLY = " pl"


def draw_slots(names: Iterable[str], rng: random.Random) -> dict[str, Item]:
    """An item for each slot name; `room` and `room2` are of one class and never the same item."""
    slots: dict[str, Item] = {}
    for name in names:
        item = rng.choice(CLASSES[name.rstrip("0123456789")])
        while item in slots.values():
            item = rng.choice(CLASSES[name.rstrip("0123456789")])
        slots[name] = draw_complement(item, rng) if isinstance(item, Action) else item
    return slots


def draw_complement(action: Action, rng: random.Random) -> Action:
    """`action` with items for what belongs to its verb: its object, its goal."""
    names = slot_names(action.rest + action.middle)
    return Action(**{**vars(action), "slots": draw_slots(names, rng)})


def entries(table: str, parted_by: str = " = ") -> Iterator[tuple[str, str]]:
    """The entries of a table, left and right of `parted_by`; a line that is indented further goes on with its entry."""
    lines = [line for part in re.split(r"\n(?! {12})", table) for line in part.split(";")]
    for line in lines:
        left, _, right = " ".join(line.split()).partition(parted_by)
        if left:
            yield left, right


def read_noun(english: str, german: str) -> Noun:
    """`child/children`, `das Kind, Kinder`; a star marks a weak noun, `pl` one without a singular."""
    singular, plural = _english_forms(english)
    article, rest = german.removesuffix(PLURAL_ONLY).split(" ", 1)
    word, german_plural = rest.split(", ") if ", " in rest else (rest, rest)
    gender = "p" if german.endswith(PLURAL_ONLY) else {"der": "m", "die": "f", "das": "n"}[article]
    return Noun(singular, plural, word.rstrip("*"), german_plural, gender, weak=word.endswith("*"))


def read_adjective(english: str, german: str) -> Adjective:
    """`big, bigger, biggest`, `groß, größer, größt`; without its degrees, English compares with `more`, `most`."""
    positive, *degrees = english.split(", ")
    german_degrees = german.split(", ") if ", " in german else [german, german + "er", german + "st"]
    return Adjective((positive, *(degrees or ("more " + positive, "most " + positive))), tuple(german_degrees))


def read_person(english: str, german: str) -> Person:
    """`our boss/he`, `unser Chef`: a pronoun says how others refer to the person; pronouns stand for themselves."""
    name, _, pronoun = english.partition("/")
    pronoun = pronoun or name
    number = {"I": "I", "he": "he", "she": "he"}.get(pronoun, "they")
    gender = {"he": "m", "she": "f"}.get(pronoun, "")
    english_forms, german_forms = (tuple(forms.split()) for forms in lexicon.PRONOUN_FORMS[pronoun])
    return Person(name, german, number, gender, english_forms, german_forms)


def read_job(english: str, german: str) -> Job:
    """`cook`, `Koch, Köchin`."""
    return Job(english, *german.split(", "))


def read_action(english: str, german: str) -> Action:
    """`call {family:own}`, `{family:ownen} ~ an-rufen, ruft, hat angerufen`."""
    first, _, rest = english.partition(" ")
    base, *irregular = first.split("/")
    verb = (base, *(irregular or (past_form(base), past_form(base))))
    phrase, third, perfect = german.split(", ")
    middle, _, infinitive = phrase.rpartition(" ")
    prefix, _, infinitive = infinitive.rpartition("-")
    return Action(verb, rest, middle, prefix, infinitive, third, tuple(perfect.split(" ")))


def _english_forms(entry: str) -> tuple[str, str]:
    """`piece/pieces of cake` -> both forms; without a slash the plural is regular."""
    forms = re.fullmatch(r"(\S+)/(\S+)(.*)", entry)
    return (forms[1] + forms[3], forms[2] + forms[3]) if forms else (entry, third_person(entry))


def _read(tables: dict[str, str], read_item: Callable[[str, str], Item]) -> dict[str, list[Item]]:
    """The items of each class; entries without German are references to earlier ones."""
    classes: dict[str, list[Item]] = {}
    known: dict[str, Item] = {}
    for name, table in tables.items():
        classes[name] = []
        for english, german in entries(table):
            if english.startswith("@"):
                classes[name] += classes[english[1:]]
                continue
            item = read_item(english, german) if german else known[english]
            known[re.split(r"[/,]", english)[0] if read_item is not read_action else english] = item
            classes[name].append(item)
    return classes


def _clock_times() -> list[Word]:
    """The times of day as they are said: `half past six` is `halb sieben`."""
    hours = [Word("one", "eins"), *_words(phrases.SMALL_NUMBERS)]
    times = []
    for index, hour in enumerate(hours):
        following = hours[(index + 1) % 12]
        times.append(Word(f"{hour.en} o'clock", f"{hour.de.removesuffix('s') if index == 0 else hour.de} Uhr"))
        times.append(Word(f"half past {hour.en}", f"halb {following.de}"))
        for english, german in (("a quarter", "Viertel"), ("ten", "zehn"), ("twenty", "zwanzig")):
            times.append(Word(f"{english} past {hour.en}", f"{german} nach {hour.de}"))
            times.append(Word(f"{english} to {hour.en}", f"{german} vor {hour.de}"))
    return times


def _two_digit_numbers() -> list[Word]:
    """21 to 69 without the tens: `twenty-three` is `dreiundzwanzig`."""
    ones = [Word("one", "ein"), *_words(phrases.SMALL_NUMBERS)[:8]]
    tens = _words(phrases.TENS)[:5]
    return [Word(f"{ten.en}-{one.en}", f"{one.de}und{ten.de}") for ten in tens for one in ones]


def _prices() -> list[Word]:
    amounts = [(euros, cents) for euros in range(1, 20) for cents in (20, 50, 90)]
    return [Word(f"{euros}.{cents}", f"{euros},{cents}") for euros, cents in amounts]


def _words(table: str) -> list[Word]:
    return [Word(english, german) for english, german in entries(table)]


def _build_classes() -> dict[str, list[Item]]:
    classes = {
        **_read(lexicon.NOUNS, read_noun),
        **_read(lexicon.ADJECTIVES, read_adjective),
        **_read(lexicon.PERSONS, read_person),
        **_read({"job": lexicon.JOBS}, read_job),
        **_read(lexicon.AUXILIARIES, Auxiliary),
        **_read(phrases.ACTIONS, read_action),
        **_read(phrases.WORDS, Word),
        **_read({"n": phrases.SMALL_NUMBERS, "few": phrases.FEW, "ordinal": phrases.ORDINALS}, Word),
        "clock": _clock_times(),
        "price": _prices(),
    }
    round_numbers = _words(phrases.TEENS) + _words(phrases.TENS)
    return classes | {
        "tens": _words(phrases.TENS),
        "many": classes["n"] + round_numbers,
        "age": round_numbers[:-3] + _two_digit_numbers(),
        "old_age": _two_digit_numbers()[18:],
        "do": classes["habit"] + classes["deed"],
        # Pronouns are the commonest subjects.
        "who": 3 * classes["pronoun"] + classes["named"],
    }


CLASSES = _build_classes()
