"""Word forms of English and German, and the slots that hold them.

A template is one text with slots such as `{clothing:einen}`. `fill` puts an item of the lexicon into each slot, in the
form the slot asks for. The templates are made in templates.py, the items in lexicon.py; generate.py joins them.

The form of a German noun phrase is named by its masculine determiner, because that one shows the case: `{food:der}` is
nominative, `{food:den}` accusative, `{food:dem}` dative, and likewise ein/einen/einem, mein/meinen/meinem/meines.
`-`, `-en`, `-em` are the three cases without an article; `own` is the possessive of the sentence's subject.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

CASES = {"er": "nominative", "en": "accusative", "em": "dative", "es": "genitive"}
GENDERS = "mfnp"  # masculine, feminine, neuter, plural: the order of every table below
ARTICLES = {
    "nominative": "der die das die",
    "accusative": "den die das die",
    "dative": "dem der dem den",
    "genitive": "des der des der",
}
PRONOUNS = {"nominative": "er sie es sie", "accusative": "ihn sie es sie", "dative": "ihm ihr ihm ihnen"}
STRONG = {"nominative": "er e es e", "accusative": "en e es e", "dative": "em er em en"}
MIXED = {"nominative": "er e es en", "accusative": "en e es en", "dative": "en en en en", "genitive": "en en en en"}
WEAK = {"nominative": "e e e en", "accusative": "en e e en", "dative": "en en en en", "genitive": "en en en en"}
EIN = {"nominative": "- e - e", "accusative": "en e - e", "dative": "em er em en", "genitive": "es er es er"}
DER_WORDS = ("dies", "welch", "jed")

# First person singular, plural; the key is the third person singular, by which a template names the verb.
ENGLISH_IRREGULAR = {"is": ("am", "are"), "was": ("was", "were"), "has": ("have", "have"), "does": ("do", "do")}
GERMAN_IRREGULAR = {
    "ist": ("bin", "sind"),
    "hat": ("habe", "haben"),
    "wird": ("werde", "werden"),
    "weiß": ("weiß", "wissen"),
    "kann": ("kann", "können"),
    "muss": ("muss", "müssen"),
    "will": ("will", "wollen"),
    "darf": ("darf", "dürfen"),
    "soll": ("soll", "sollen"),
    "mag": ("mag", "mögen"),
    "war": ("war", "waren"),
    "erinnert": ("erinnere", "erinnern"),
    "nimmt": ("nehme", "nehmen"),
    "fährt": ("fahre", "fahren"),
    "hilft": ("helfe", "helfen"),
    "spricht": ("spreche", "sprechen"),
    "liest": ("lese", "lesen"),
}
SHORT_STEMS = {"teuer": "teur", "dunkel": "dunkl", "hoch": "hoh", "sauer": "saur"}
DOUBLING = ("get", "jog", "put", "swim", "forget", "travel")


@dataclass(frozen=True)
class Context:
    """What a slot may have to agree with."""

    subject: "Person | None" = None
    adjectives: "tuple[tuple[Adjective, int], ...]" = ()  # with the degree: 0 old, 1 older, 2 oldest


@dataclass(frozen=True)
class Word:
    """A word or phrase that is the same in every sentence."""

    en: str
    de: str

    def english(self, form: str, context: Context) -> str:
        return f"{form} {self.en}".strip()

    def german(self, form: str, context: Context) -> str:
        return self.de


@dataclass(frozen=True)
class Person:
    """Somebody who can be the subject: a pronoun, a name, or a relative who is referred to by a pronoun."""

    en: str
    de: str
    number: str  # "I", "he" or "they": which verb form follows
    gender: str
    english_forms: tuple[str, str, str]  # he, him, his
    german_forms: tuple[str, str, str, str]  # er, ihn, ihm, sein

    def english(self, form: str, context: Context) -> str:
        """`he`, `him`, `his`; any other form is a verb to agree with this person."""
        if form in ("he", "him", "his"):
            return self.english_forms[("he", "him", "his").index(form)]
        return english_agreement(form, self.number) if form else self.en

    def german(self, form: str, context: Context) -> str:
        """`er`, `ihn`, `ihm`, `sein`, `sich`; any other form is a verb to agree with this person."""
        if form in ("er", "ihn", "ihm", "sein"):
            return self.german_forms[("er", "ihn", "ihm", "sein").index(form)]
        if form == "sich":
            return self.german_forms[1] if self.german_forms[0] in ("ich", "wir") else "sich"
        return german_agreement(form, self.number) if form else self.de


@dataclass(frozen=True)
class Job:
    """A profession; German has one word for men and one for women, and no article."""

    en: str
    de: str
    de_woman: str

    def english(self, form: str, context: Context) -> str:
        return f"{form} {self.en}".strip()

    def german(self, form: str, context: Context) -> str:
        return self.de_woman if context.subject is not None and context.subject.gender == "f" else self.de


@dataclass(frozen=True)
class Auxiliary:
    """A verb that takes another verb's infinitive, by its third person: `wants to` = `will`."""

    en: str
    de: str

    def english(self, form: str, context: Context) -> str:
        return english_agreement(self.en, number_of(context.subject))

    def german(self, form: str, context: Context) -> str:
        return german_agreement(self.de, number_of(context.subject))


@dataclass(frozen=True)
class Adjective:
    """Positive, comparative and superlative; German superlatives are stems (`größt`), as only attributes are made."""

    en: tuple[str, str, str]
    de: tuple[str, str, str]

    def english(self, form: str, context: Context) -> str:
        return self.en[("", "er", "est").index(form)]

    def german(self, form: str, context: Context) -> str:
        return self.de[("", "er", "est").index(form)]

    def stem(self, degree: int) -> str:
        """What the endings of an attribute are put on: `teur` + `e`."""
        return SHORT_STEMS.get(self.de[degree], self.de[degree])


@dataclass(frozen=True)
class Noun:
    """A noun with its gender; `weak` nouns end like their plural in every case but the nominative."""

    en: str
    en_plural: str
    de: str
    de_plural: str
    gender: str
    weak: bool = False

    def english(self, form: str, context: Context) -> str:
        """`the`, `a`, `my` … come in front; `pl` or `pl the` is the plural; `own` is my, your, his …"""
        if form == "own":
            form = context.subject.english("his", context) if context.subject else "their"
        plural, determiner = _split_plural(form)
        adjectives = [adjective.en[degree] for adjective, degree in context.adjectives]
        return " ".join([determiner, *adjectives, self.en_plural if plural else self.en]).strip()

    def german(self, form: str, context: Context) -> str:
        """A noun phrase by its masculine determiner; also `er`, `ihn`, `ihm` and the relative `rel der`, `rel den`."""
        plural, determiner = _split_plural(form)
        gender = "p" if plural else self.gender
        if determiner in ("er", "ihn", "ihm"):
            return _cell(PRONOUNS, dict(zip(("er", "ihn", "ihm"), PRONOUNS, strict=True))[determiner], gender)
        if determiner.startswith("rel "):
            case = CASES["e" + determiner[-1]]
            return "denen" if (case, gender) == ("dative", "p") else _cell(ARTICLES, case, gender)
        if not determiner:
            return self._inflected("nominative", plural)
        if determiner.startswith("own"):
            owner = context.subject.german("sein", context) if context.subject else "sein"
            determiner = determiner.replace("own", owner)
        word, case, endings = _determine(determiner, gender)
        adjectives = [a.stem(degree) + _cell(endings, case, gender) for a, degree in context.adjectives]
        return " ".join([word, *adjectives, self._inflected(case, plural)]).strip()

    def _inflected(self, case: str, plural: bool) -> str:
        if plural or self.gender == "p":
            return self.de_plural + ("n" if case == "dative" and self.de_plural[-1] not in "ns" else "")
        if self.weak and case != "nominative":
            return self.de_plural
        if case == "genitive" and self.gender in "mn":
            return self.de + ("es" if re.search(r"(s|ß|x|z|hn)$", self.de) else "s")
        return self.de


@dataclass(frozen=True)
class Action:
    """A verb with what belongs to it: `call his mother` = `seine Mutter anrufen`.

    `rest` and `middle` are templates of their own, over `slots`; a `~` in the middle is where `nicht` would stand.
    """

    verb: tuple[str, str, str]  # take, took, taken
    rest: str
    middle: str
    prefix: str  # of a separable verb
    infinitive: str  # without the prefix
    third: str
    perfect: tuple[str, str]  # hat, gesehen
    slots: Mapping[str, object] = field(default_factory=dict)

    def english(self, form: str, context: Context) -> str:
        """The base form, or `s` (agreeing with the subject), `ed`, `en` (participle), `ing`."""
        base, past, participle = self.verb
        match form:
            case "s":
                verb = third_person(base) if number_of(context.subject) == "he" else base
            case "ed":
                verb = past
            case "en":
                verb = participle
            case "ing":
                verb = ing_form(base)
            case _:
                verb = base
        return f"{verb} {fill(self.rest, self.slots, 'english', context.subject)}".strip()

    def german(self, form: str, context: Context) -> str:
        """`v` finite verb, `obj` what stands between, `nicht` the same negated, `off` the prefix that is left behind,
        `end` finite verb at the end of a clause, `inf`, `zu`, `Sie` (imperative), `hat` and `pp` for the perfect."""
        match form:
            case "obj":
                return fill(self.middle.replace("~", ""), self.slots, "german", context.subject)
            case "nicht":
                return fill(_negated(self.middle), self.slots, "german", context.subject)
            case "off":
                return self.prefix
            case "inf":
                return self.prefix + self.infinitive
            case "zu":
                return f"{self.prefix}zu{self.infinitive}" if self.prefix else f"zu {self.infinitive}"
            case "Sie":
                return f"{self.infinitive} Sie"
            case "hat":
                return german_agreement(self.perfect[0], number_of(context.subject))
            case "pp":
                return self.perfect[1]
        person = number_of(context.subject)
        stem = self.infinitive.removesuffix("n").removesuffix("e")
        finite = {"I": stem + "e", "he": self.third, "they": self.infinitive}[person]
        return self.prefix + finite if form == "end" else finite


Item = Word | Person | Job | Auxiliary | Adjective | Noun | Action


def slot_names(template: str) -> list[str]:
    """The names of a template's slots, each once, in order: `{colour clothing:a}` holds two."""
    names = [name.lstrip("+") for slot in re.findall(r"\{([^{}:]+)", template) for name in slot.split()]
    return list(dict.fromkeys(names))


def fill(template: str, slots: Mapping[str, Item], language: str, subject: Person | None = None) -> str:
    """`template` with every slot filled; a slot agrees with the first person whose slot bears the same number."""
    persons: dict[str, Person] = {}
    for name, item in slots.items():
        if isinstance(item, Person):
            persons.setdefault(_slot_number(name), item)

    def fill_slot(match: re.Match) -> str:
        *adjectives, name = match[1].split()
        owner = persons.get(_slot_number(name), subject)
        attributes = tuple((slots[a.lstrip("+")], a.count("+")) for a in adjectives)
        return getattr(slots[name], language)(match[2] or "", Context(owner, attributes))

    return re.sub(r"\{([^{}:]+)(?::([^{}]*))?\}", fill_slot, template)


def polish_english(text: str) -> str:
    """Spaces, capitals and `an` for `a` where a vowel follows."""
    text = re.sub(r"\b([Aa]) +(?=[aeiouAEIO]|hour)(?!uni|use|euro|one)", r"\1n ", text)
    return _sentence_case(text)


def polish_german(text: str) -> str:
    """Spaces, capitals and contractions (`im`, `zur` …), which a relative pronoun (`, in dem`) does not take."""
    for full, short in CONTRACTIONS.items():
        text = re.sub(rf"(?<!, )\b{full}\b", short, text, flags=re.IGNORECASE)
    return _sentence_case(text)


CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "bei dem": "beim",
    "von dem": "vom",
}


def number_of(subject: Person | None) -> str:
    """Which verb form a subject takes; without one (`who reads?`) it is the third person singular."""
    return subject.number if subject is not None else "he"


def english_agreement(verb: str, number: str) -> str:
    """The third person `verb` for another person: `wants to` -> `want to`, `isn't` -> `aren't`."""
    if number == "he":
        return verb
    first, *rest = verb.split(" ")
    stem, negation = (first[:-3], "n't") if first.endswith("n't") else (first, "")
    stem = ENGLISH_IRREGULAR[stem][number != "I"] if stem in ENGLISH_IRREGULAR else stem.removesuffix("s")
    return " ".join([stem + negation, *rest])


def german_agreement(verb: str, number: str) -> str:
    """The third person `verb` for another person: `kommt` -> `komme`, `kommen`; `möchte` -> `möchten`."""
    if number == "he":
        return verb
    if verb in GERMAN_IRREGULAR:
        return GERMAN_IRREGULAR[verb][number != "I"]
    stem = re.sub(r"(?<=[td])et$|te$|t$", lambda ending: "t" if ending[0] == "te" else "", verb)
    return stem + ("e" if number == "I" else "en")


def third_person(verb: str) -> str:
    """`go` -> `goes`, `carry` -> `carries`; also the regular plural of nouns."""
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ies"
    return verb + ("es" if re.search(r"(s|x|ch|sh|^go|^do)$", verb) else "s")


def ing_form(verb: str) -> str:
    """`write` -> `writing`, `swim` -> `swimming`."""
    if verb in DOUBLING:
        return verb + verb[-1] + "ing"
    return re.sub(r"(?<=[^e])e$", "", verb) + "ing"


def past_form(verb: str) -> str:
    """The past of a regular verb: `carry` -> `carried`, `bake` -> `baked`, `travel` -> `travelled`."""
    if verb in DOUBLING:
        return verb + verb[-1] + "ed"
    return re.sub(r"(?<=[^aeiou])y$", "i", verb).removesuffix("e") + "ed"


def _slot_number(name: str) -> str:
    return name[-1] if name[-1].isdigit() else ""


def _split_plural(form: str) -> tuple[bool, str]:
    return (True, form[2:].strip()) if form == "pl" or form.startswith("pl ") else (False, form)


def _cell(table: Mapping[str, str], case: str, gender: str) -> str:
    return table[case].split()[GENDERS.index(gender)].replace("-", "")


def _determine(determiner: str, gender: str) -> tuple[str, str, Mapping[str, str]]:
    """A masculine determiner as the word for `gender`, its case, and the endings that adjectives take after it."""
    if determiner in ("der", "den", "dem", "des"):
        case = CASES["e" + determiner[-1]]
        return _cell(ARTICLES, case, gender), case, WEAK
    stem, case = determiner, "nominative"
    if len(determiner) > 2 and determiner[-2:] in ("en", "em", "es"):
        stem, case = determiner[:-2], CASES[determiner[-2:]]
    if stem == "-":
        return "", case, STRONG
    if stem.removesuffix("er") in DER_WORDS:
        return stem.removesuffix("er") + _cell(STRONG, case, gender), case, WEAK
    return stem + _cell(EIN, case, gender), case, MIXED


def _negated(middle: str) -> str:
    """`einen Brief` -> `keinen Brief`; where there is nothing to say `kein` to, `nicht` stands at the `~`."""
    with_kein = re.sub(r":(pl )?(?:ein|-)en\}", r":\1keinen}", middle)
    return middle.replace("~", "nicht") if with_kein == middle else with_kein.replace("~", "")


def _sentence_case(text: str) -> str:
    text = re.sub(r"\s+([.,!?])", r"\1", re.sub(r"\s+", " ", text)).strip()
    return re.sub(r"(^|[.!?] )(\w)", lambda start: start[1] + start[2].upper(), text)
