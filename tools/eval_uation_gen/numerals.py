"""Ukrainian numerals 1 to 99 and "last", by a closed table of stems and endings.

Arrives: a number, a gender and a case.  Leaves: its words.  It deliberately does not know the
counted nouns.

Only the last word of a compound ordinal is inflected: "двадцять третьої".  The apostrophe is
U+0027.
"""

from itertools import product
from typing import Literal

Gender = Literal["m", "f", "n"]
NumeralCase = Literal["nom", "gen", "dat", "acc", "ins", "loc"]
GENDERS: tuple[Gender, ...] = ("m", "f", "n")
CASES: tuple[NumeralCase, ...] = ("nom", "gen", "dat", "acc", "ins", "loc")
LAST = -1
MOST = 99

_UNITS = ("один", "два", "три", "чотири", "п'ять", "шість", "сім", "вісім", "дев'ять", "десять")
_TEENS = (
    "одинадцять", "дванадцять", "тринадцять", "чотирнадцять", "п'ятнадцять", "шістнадцять",
    "сімнадцять", "вісімнадцять",
    "дев'ятнадцять",
)  # fmt: skip
_TENS = (
    "двадцять", "тридцять", "сорок", "п'ятдесят", "шістдесят", "сімдесят", "вісімдесят",
    "дев'яносто",
)  # fmt: skip
_CARDINALS = (*_UNITS, *_TEENS)
_ORDINAL_UNITS = (
    "перш", "друг", "трет", "четверт", "п'ят", "шост", "сьом", "восьм", "дев'ят", "десят",
)  # fmt: skip
_ORDINAL_TEENS = tuple(word.removesuffix("ь") for word in _TEENS)
_ORDINAL_TENS = (
    "двадцят", "тридцят", "сороков", "п'ятдесят", "шістдесят", "сімдесят", "вісімдесят",
    "дев'яност",
)  # fmt: skip
_ORDINALS = (*_ORDINAL_UNITS, *_ORDINAL_TEENS)
_LAST = "останн"
_SOFT = (_ORDINAL_UNITS[2], _LAST)
# By case: masculine, feminine, neuter.  The masculine accusative is that of inanimate nouns, equal
# to the nominative.
_HARD_ENDINGS: dict[NumeralCase, tuple[str, str, str]] = {
    "nom": ("ий", "а", "е"),
    "gen": ("ого", "ої", "ого"),
    "dat": ("ому", "ій", "ому"),
    "acc": ("ий", "у", "е"),
    "ins": ("им", "ою", "им"),
    "loc": ("ому", "ій", "ому"),
}
_SOFT_ENDINGS: dict[NumeralCase, tuple[str, str, str]] = {
    "nom": ("ій", "я", "є"),
    "gen": ("ього", "ьої", "ього"),
    "dat": ("ьому", "ій", "ьому"),
    "acc": ("ій", "ю", "є"),
    "ins": ("ім", "ьою", "ім"),
    "loc": ("ьому", "ій", "ьому"),
}


def cardinal(n: int) -> str:
    """Nominative cardinal; 1 and 2 masculine, as in counting.  Raises ValueError beyond 1 to 99:
    "last" has no cardinal."""
    return "".join(_parts(n, _CARDINALS, _TENS))


def ordinal(n: int, gender: Gender, case: NumeralCase) -> str:
    """Ordinal of 1 to 99 or LAST.  Raises ValueError for other numbers."""
    if n == LAST:
        return _inflected(_LAST, gender, case)
    lead, stem = _parts(n, _ORDINALS, _ORDINAL_TENS)
    return lead + _inflected(stem, gender, case)


def _parts(n: int, small: tuple[str, ...], tens: tuple[str, ...]) -> tuple[str, str]:
    """The words before the last one, which are cardinals, and the last one."""
    if not 1 <= n <= MOST:
        raise ValueError(f"{n} has no numeral here, expected 1 to {MOST}")
    if n <= len(small):
        return "", small[n - 1]
    ten, unit = divmod(n, 10)
    if not unit:
        return "", tens[ten - 2]
    return f"{_TENS[ten - 2]} ", small[unit - 1]


def _inflected(stem: str, gender: Gender, case: NumeralCase) -> str:
    endings = _SOFT_ENDINGS if stem in _SOFT else _HARD_ENDINGS
    return stem + endings[case][GENDERS.index(gender)]


def table_of() -> str:
    """numerals.csv: a column for the cardinals, and for each form of the ordinals that differs."""
    forms: dict[str, tuple[Gender, NumeralCase]] = {}
    for form in product(GENDERS, CASES):
        forms.setdefault(ordinal(1, *form), form)
    rows = [["n", "cardinal", *map(".".join, forms.values())]]
    for n in (*range(1, MOST + 1), LAST):
        ordinals = [ordinal(n, *form) for form in forms.values()]
        if n == LAST:
            rows.append(["last", "", *ordinals])
        else:
            rows.append([str(n), cardinal(n), *ordinals])
    return "".join(f"{','.join(row)}\n" for row in rows)
