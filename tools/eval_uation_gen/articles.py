"""Invented news articles, each made of a frame: who, where, did what, how many of what, when.

Arrives: the number of articles.  Leaves: `Article`s whose tags are slots of their frames.  It
deliberately does not know how titles are sampled.

No two articles share actor, town, action and object, so no other title is true of an article even
with its digits masked.
"""

from typing import NamedTuple

from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.eval_uation_gen.titles import Article
from tools.eval_uation_gen.rows import VERSION


class _Actor(NamedTuple):
    name: str  # nominative, capital
    gender: int  # 0 masculine, 1 feminine
    tag: str


class _Doing(NamedTuple):
    of_title: tuple[str, str]  # masculine, feminine
    of_text: tuple[str, str]  # a synonym, so that no text contains its title
    tag: str


class _Thing(NamedTuple):
    plural: str  # genitive plural, behind 5 or more
    tag: str
    purpose: str


# fmt: off
_ACTORS = (
    _Actor("Міська рада", 1, "влада"), _Actor("Центральна бібліотека", 1, "бібліотеки"),
    _Actor("Музична школа", 1, "освіта"), _Actor("Обласна лікарня", 1, "медицина"),
    _Actor("Пожежна частина", 1, "рятувальники"), _Actor("Спортивна академія", 1, "спорт"),
    _Actor("Краєзнавчий музей", 0, "музеї"), _Actor("Аграрний університет", 0, "освіта"),
    _Actor("Ляльковий театр", 0, "театр"), _Actor("Ботанічний сад", 0, "природа"),
    _Actor("Молодіжний центр", 0, "молодь"), _Actor("Трамвайний парк", 0, "транспорт"),
)
_TOWNS = ("Вербополі", "Лугівську", "Кленограді", "Новоозерську", "Соснополі", "Тихограді",
    "Медівську", "Грушополі",
          "Криничанську", "Ясенограді", "Калинополі", "Верхоріченську")
_DOINGS = (
    _Doing(("придбав", "придбала"), ("купив", "купила"), "закупівлі"),
    _Doing(("передав", "передала"), ("подарував", "подарувала"), "допомога"),
    _Doing(("замовив", "замовила"), ("попросив виготовити", "попросила виготовити"), "замовлення"),
    _Doing(("показав", "показала"), ("виставив на огляд", "виставила на огляд"), "виставки"),
    _Doing(("відремонтував", "відремонтувала"), ("полагодив", "полагодила"), "ремонт"),
    _Doing(("орендував", "орендувала"), ("винайняв", "винайняла"), "оренда"),
)
_THINGS = (
    _Thing("автобусів", "автобуси", "Вони возитимуть людей із далеких сіл."),
    _Thing("велосипедів", "велосипеди", "Кататися на них зможуть усі охочі."),
    _Thing("роялів", "музика", "На першому концерті заграють учні молодших класів."),
    _Thing("мікроскопів", "наука", "З ними працюватимуть юні дослідники."),
    _Thing("човнів", "човни", "Плаватимуть вони тихим озером."),
    _Thing("телескопів", "астрономія", "У ясні ночі в них можна буде побачити кільця Сатурна."),
    _Thing("тракторів", "техніка", "Уперше вони виїдуть у поле навесні."),
    _Thing("наметів", "туризм", "Стояти вони будуть на березі озера."),
    _Thing("ліхтарів", "освітлення", "Світитимуть вони лише тоді, коли хтось іде повз."),
    _Thing("пральних машин", "побут", "Користуватися ними дозволять усім мешканцям."),
    _Thing("швейних машинок", "ремесла", "На них шитимуть костюми до свята."),
    _Thing("вуликів", "бджоли", "Перший мед обіцяють роздати дітям."),
)
_MONTHS = ("січні", "лютому", "березні", "квітні", "травні", "червні", "липні", "серпні", "вересні",
    "жовтні",
           "листопаді", "грудні")
_MONTHS_OF = ("січня", "лютого", "березня", "квітня", "травня", "червня", "липня", "серпня",
    "вересня", "жовтня",
              "листопада", "грудня")
_NUMBERS = (15, 16, 17,
    18)  # few, of two digits: neither a number nor the length of its mask reveals a title
_TITLES = (
    "{actor} {at} {town} {did} {number} {things}",
    "У {town} {actor_low} {did} {number} {things}",
    "{number} {things}: що {did} {actor_low} {at} {town}",
    "{actor} з новиною: у {town} вона {did} {number} {things}",
)
_OPENINGS = (
    "У {month} {actor_low} {at} {town} {did_else} {number} {things}.",
    "Ще {in_month} {month} стало відомо, що {actor_low} {at} {town} {did_else} {number} {things}.",
    "Новина {month_of}: {actor_low} {at} {town} {did_else} {number} {things}.",
)
_MIDDLE = (
    "Торік таких було лише {before}.", "Від задуму до справи минуло {days} днів.",
    "Новину вже обговорили {people} мешканців.",
    "Загалом витратили {money} тисяч гривень.", "Наступного разу обіцяють {more}.",
)
_END = (
    "Мешканці сподіваються, що це лише початок.",
    "Докладніше обіцяють розповісти на зборах громади.",
    "Поки що все йде за планом.", "Урочистостей вирішили не влаштовувати.",
    "Сусідні громади вже питають про досвід.",
)
# fmt: on


def articles(count: int) -> list[Article]:
    """`count` articles of different frames."""
    by_frame: dict[tuple[str, str, str, str], Article] = {}
    attempts = 0
    while len(by_frame) < count:
        draw = Stream("eval-ua-tion-gen", VERSION, "articles", len(by_frame), attempts)
        attempts += 1
        actor = draw.choice(_ACTORS)
        town = draw.choice(_TOWNS)
        doing = draw.choice(_DOINGS)
        thing = draw.choice(_THINGS)
        frame = (actor.name, town, doing.tag, thing.plural)
        if frame not in by_frame:
            by_frame[frame] = _article(draw, actor, town, doing, thing)
    return list(by_frame.values())


def _article(draw: Stream, actor: _Actor, town: str, doing: _Doing, thing: _Thing) -> Article:
    month = draw.below(12)
    words = {
        "actor": actor.name,
        "actor_low": actor.name[0].lower() + actor.name[1:],
        "town": town,
        # between a vowel and a consonant, or elsewhere
        "at": "в" if actor.gender and town[0] not in "ВФ" else "у",
        "did": doing.of_title[actor.gender],
        "did_else": doing.of_text[actor.gender],
        "number": draw.choice(_NUMBERS),
        "things": thing.plural,
        "month": _MONTHS[month],
        "in_month": "у" if _MONTHS[month][0] == "в" else "в",
        "month_of": _MONTHS_OF[month],
        "before": _many(draw, 5, 10),
        "days": _many(draw, 5, 90),
        "people": _many(draw, 105, 998),
        "money": _many(draw, 105, 9990),
        "more": _many(draw, 5, 98),
    }
    templates = _TITLES if actor.gender else _TITLES[:-1]  # the last speaks of "her"
    middle = [sentence.format(**words) for sentence in draw.sample(_MIDDLE, 3)]
    body = [draw.choice(_OPENINGS).format(**words), thing.purpose, *middle, draw.choice(_END)]
    tags = (actor.tag, town.lower(), doing.tag, thing.tag)
    return Article(draw.choice(templates).format(**words), " ".join(body), tags)


def _many(draw: Stream, least: int, most: int) -> int:
    """A number that takes the genitive plural."""
    while True:
        n = least + draw.below(most - least + 1)
        if n % 100 in range(11, 15) or n % 10 in (0, 5, 6, 7, 8, 9):
            return n
