"""Stories with a gap, in the manner of UA-CBT: what happened is an event log, so what may fill the gap is known.

Arrives: how many rows.  Leaves: rows in the published shape.  It deliberately does not know models.

Six animals of one gender each do something of their own to a thing of their own, all things of one gender; some things are
given away afterwards.  The last 35 % of the sentences recall one of these facts and leave a word out: an animal
(NAMED_ENTITY), a thing (COMMON_NOUN) or a doing (VERB).  The options are the six of the story in the one form that the gap
takes, so that grammar tells nothing, and by the log exactly one of them is true.  All six are named in the story before.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.eval_uation_gen.lexicon import Noun, StoryCase, Verb, idle, nouns, places, verbs
from miron_jax.tasks.generators.eval_uation_gen.numerals import Gender
from miron_jax.tasks.generators.eval_uation_gen.rows import VERSION

GAP = "______"
CAST = 6
QUESTION_SHARE = 0.35
TASK_TYPES = ("NAMED_ENTITY", "COMMON_NOUN", "VERB")
PER_STORY = 6  # rows, two of each type
_INTROS = (
    "Колись давно в сусідніх хатках жили {names}.",
    "У давні часи край старого лісу оселилися {names}.",
    "Було це тоді, коли на одній вулиці мешкали {names}.",
    "Розповідають, що в зеленій долині колись товаришували {names}.",
)
_THINGS = (
    "Тоді всі тільки й говорили про такі речі: {names}.",
    "Не раз іще в цій історії трапляться {names}.",
    "А найбільше в тих краях цінували такі речі: {names}.",
)
_TIMES = (  # six in order
    ("У понеділок", "У вівторок", "У середу", "У четвер", "У п'ятницю", "У суботу"),
    ("У травні", "У червні", "У липні", "У серпні", "У вересні", "У жовтні"),
    ("Першого дня", "Другого дня", "Третього дня", "Четвертого дня", "П'ятого дня", "Шостого дня"),
    ("Удосвіта", "Уранці", "Перед обідом", "Опівдні", "По обіді", "Надвечір"),
)
_CALM = (  # an evening, in order
    "Стежка заросла травою.", "Пахло чебрецем і медом.", "Десь удалині загуркотів грім.", "Вітер нарешті вщух.",
    "Сонце хилилося за обрій.", "Увечері всі зібралися біля багаття.", "У казані тихо булькала каша.",
    "Вогонь потріскував і сипав іскрами.", "Ніхто нікуди не поспішав.", "Над долиною підіймався туман.",
    "Над головами засвітилися перші зорі.", "Розмова тривала до пізньої ночі.",
)  # fmt: skip
_ENDS = ("На тому й розійшлися по домівках.", "На ранок усе пішло своїм ладом.", "Відтоді минуло багато років.")
_EARLY = ("грівся під ранковим сонцем", "прокинувся ще до світанку")  # what nobody does in the evening
_HIMSELF: dict[Gender, str] = {"m": "сам", "f": "сама", "n": "саме"}
_PRONOUN: dict[Gender, str] = {"m": "він", "f": "вона", "n": "воно"}
_WHOM: dict[Gender, str] = {"m": "який", "f": "яку", "n": "яке"}
_GAVE: dict[Gender, str] = {"m": "віддав", "f": "віддала", "n": "віддало"}


class Event(NamedTuple):
    """Who did what to which thing."""

    actor: Noun
    verb: Verb
    thing: Noun


class Gift(NamedTuple):
    giver: Noun
    thing: Noun
    taker: Noun


@dataclass(frozen=True, slots=True)
class Log:
    """All that happened: six events, then gifts, of no thing twice."""

    events: tuple[Event, ...]
    gifts: tuple[Gift, ...]

    def taker(self, thing: Noun) -> Noun | None:
        """Whose it is at the end; None: the story does not say."""
        return next((gift.taker for gift in self.gifts if gift.thing == thing), None)

    def did(self, actor: Noun, verb: Verb, thing: Noun) -> bool:
        return Event(actor, verb, thing) in self.events


class Gap(NamedTuple):
    """A sentence with a gap, the options in its form, and which of them the log makes true."""

    type: Literal["NAMED_ENTITY", "COMMON_NOUN", "VERB"]
    form: str  # the case of a noun, "past" of a verb
    text: str
    options: tuple[str, ...]
    lemmas: tuple[str, ...]
    true: tuple[bool, ...]


class Sentence(NamedTuple):
    text: str
    lemmas: tuple[str, ...]  # of animals, things and doings that it names


def rows_of(split: str, count: int) -> list[dict[str, Any]]:
    """PER_STORY rows a story."""
    found: list[dict[str, Any]] = []
    for story in range(-(-count // PER_STORY)):
        draw = Draw("eval-ua-tion-gen", VERSION, "ua_cbt", split, story)
        log = _happened(draw)
        gaps = _gaps(draw, log)
        told = _told(draw, log)
        found += [_row(draw, log, told, gap, story, len(found) + i) for i, gap in enumerate(gaps)]
    return found[:count]


def _happened(draw: Draw) -> Log:
    cast_gender, thing_gender = draw.choice(("m", "f")), draw.choice(("m", "f", "n"))
    actors = draw.sample(nouns("animal", cast_gender), CAST)
    things = draw.sample(nouns("thing", thing_gender), CAST)
    doings = draw.sample(verbs(), CAST)
    while sum(verb.keeps for verb in doings) < 3:
        doings = draw.sample(verbs(), CAST)
    events = tuple(map(Event, actors, doings, things))
    given = draw.sample([own for own in events if own.verb.keeps], 1 + draw.below(3))
    gifts = [Gift(own.actor, own.thing, draw.choice([a for a in actors if a != own.actor])) for own in given]
    return Log(events, tuple(gifts))


def _told(draw: Draw, log: Log) -> tuple[Sentence, ...]:
    """The story before its last part: 13 sentences."""
    actors, things = [own.actor for own in log.events], [own.thing for own in log.events]
    opening = [_listing(draw, _INTROS, actors), _listing(draw, _THINGS, things)]
    times, where = draw.choice(_TIMES), draw.sample(places(), CAST)
    events = [_event(draw, own, times[i], where[i]) for i, own in enumerate(draw.shuffled(log.events))]
    gifts = [_gift(own) for own in log.gifts]
    doings = draw.sample(idle(), 5 - len(gifts))
    rest = [_idle(draw.choice(actors), own) for own in doings]
    return (*opening, *_mixed(draw, events, rest), *gifts)


def _listing(draw: Draw, templates: Sequence[str], own: Sequence[Noun]) -> Sentence:
    names = [noun.form("nom") for noun in draw.shuffled(own)]
    text = draw.choice(templates).format(names=f"{', '.join(names[:-1])} та {names[-1]}")
    return Sentence(text, tuple(noun.lemma for noun in own))


def _event(draw: Draw, own: Event, time: str, place: str) -> Sentence:
    actor, verb, thing = own.actor.form("nom"), own.verb.by(own.actor.gender), own.thing.form("acc")
    order = draw.choice(("{time} {actor} {place} {verb} {thing}.", "{time} {place} {actor} {verb} {thing}."))
    text = order.format(time=time, actor=actor, verb=verb, thing=thing, place=place)
    return Sentence(text, (own.actor.lemma, own.verb.lemma, own.thing.lemma))


def _gift(own: Gift) -> Sentence:
    giver, thing, taker = own.giver.form("nom"), own.thing.form("acc"), own.taker.form("dat")
    text = f"Потім {giver} назавжди {_GAVE[own.giver.gender]} {taker} {thing}."
    return Sentence(text, (own.giver.lemma, own.thing.lemma, own.taker.lemma))


def _idle(actor: Noun, doing: Any) -> Sentence:
    name = actor.form("nom")
    return Sentence(f"{name[0].upper()}{name[1:]} {doing.by(actor.gender)}.", (actor.lemma,))


def _mixed(draw: Draw, first: list[Sentence], second: list[Sentence]) -> list[Sentence]:
    """Both in their own order, dealt into one another."""
    places_of_second = set(draw.sample(range(len(first) + len(second)), len(second)))
    a, b = iter(first), iter(second)
    return [next(b) if i in places_of_second else next(a) for i in range(len(first) + len(second))]


def _gaps(draw: Draw, log: Log) -> list[Gap]:
    """Two of each type, about facts drawn among all that the log makes unique."""
    found = []
    for possible in (_animal_gaps(log), _thing_gaps(log), _verb_gaps(log)):
        found += [gap(fact) for fact, gap in _drawn(draw, possible)]
    return found


Make = Callable[[Any], Gap]


def _drawn(draw: Draw, possible: list[tuple[Any, list[Make]]]) -> list[tuple[Any, Make]]:
    """Two facts, each told by one of the templates that fit it."""
    return [(fact, draw.choice(makes)) for fact, makes in draw.sample(possible, PER_STORY // len(TASK_TYPES))]


def _animal_gaps(log: Log) -> list[tuple[Any, list[Make]]]:
    actors = [own.actor for own in log.events]

    def did(case: StoryCase, text: str) -> Make:
        def make(own: Event) -> Gap:
            verb, gender = own.verb.by(own.actor.gender), own.actor.gender
            filled = text.format(thing=own.thing.form("acc"), verb=verb, pronoun=_PRONOUN[gender])
            true = tuple(log.did(actor, own.verb, own.thing) for actor in actors)
            return _gap("NAMED_ENTITY", case, filled, actors, true)

        return make

    def has(own: Event) -> Gap:
        text = f"Наприкінці {own.thing.form('acc')} можна було знайти хіба що в хатці {GAP} ."
        return _gap("NAMED_ENTITY", "gen", text, actors, tuple(log.taker(own.thing) == actor for actor in actors))

    makes = [did(case, text) for case, text in _ANIMAL_TEMPLATES]
    return [(own, [*makes, has] if log.taker(own.thing) else makes) for own in log.events]


_ANIMAL_TEMPLATES: tuple[tuple[StoryCase, str], ...] = (
    ("nom", f"Усі пригадали, що {{thing}} {{verb}} саме {GAP} ."),
    ("gen", f"Усі сіли навколо {GAP} , бо саме {{pronoun}} {{verb}} {{thing}}."),
    ("dat", f"Того вечора дивувалися найбільше {GAP} , бо саме {{pronoun}} {{verb}} {{thing}}."),
    ("acc", f"Слухали передусім {GAP} , бо саме {{pronoun}} {{verb}} {{thing}}."),
    ("ins", f"Жартували найчастіше над {GAP} , бо саме {{pronoun}} {{verb}} {{thing}}."),
)


def _thing_gaps(log: Log) -> list[tuple[Any, list[Make]]]:
    things = [own.thing for own in log.events]

    def did(case: StoryCase, text: str) -> Make:
        def make(own: Event) -> Gap:
            gender = own.actor.gender
            filled = text.format(
                actor=_capital(own.actor.form("nom")),
                verb=own.verb.by(gender),
                himself=_HIMSELF[gender],
                whom=_WHOM[own.thing.gender],
                told="розповідав" if gender == "m" else "розповідала",
                stood="стояв" if gender == "m" else "стояла",
                was_proud="пишався" if gender == "m" else "пишалася",
                was_glad="радів" if gender == "m" else "раділа",
            )
            true = tuple(log.did(own.actor, own.verb, thing) for thing in things)
            return _gap("COMMON_NOUN", case, filled, things, true)

        return make

    told = did("acc", f"{{actor}} довго {{told}}, як {{verb}} {GAP} .")
    proud = [did(case, text) for case, text in _THING_TEMPLATES]
    return [(own, [told, *proud] if own.verb.keeps and log.taker(own.thing) is None else [told]) for own in log.events]


_THING_TEMPLATES: tuple[tuple[StoryCase, str], ...] = (
    ("gen", f"{{actor}} ще довго {{stood}} біля {GAP} , {{whom}} {{himself}} {{verb}}."),
    ("ins", f"{{actor}} {{was_proud}} {GAP} , {{whom}} {{himself}} {{verb}}."),
    ("dat", f"{{actor}} щиро {{was_glad}} {GAP} , {{whom}} {{himself}} {{verb}}."),
)


def _verb_gaps(log: Log) -> list[tuple[Any, list[Make]]]:
    doings = [own.verb for own in log.events]

    def did(text: str) -> Make:
        def make(own: Event) -> Gap:
            gender = own.actor.gender
            filled = text.format(actor=own.actor.form("nom"), thing=own.thing.form("acc"))
            true = tuple(log.did(own.actor, verb, own.thing) for verb in doings)
            options = tuple(verb.by(gender) for verb in doings)
            return Gap("VERB", "past", filled, options, tuple(verb.lemma for verb in doings), true)

        return make

    makes = [
        did(f"Ніхто не сперечався: {{actor}} таки {GAP} {{thing}}."),
        did(f"Найдовше згадували, як {{actor}} {GAP} {{thing}}."),
    ]
    return [(own, makes) for own in log.events]


def _gap(
    kind: Literal["NAMED_ENTITY", "COMMON_NOUN"],
    case: StoryCase,
    text: str,
    own: Sequence[Noun],
    true: tuple[bool, ...],
) -> Gap:
    return Gap(kind, case, text, tuple(noun.form(case) for noun in own), tuple(noun.lemma for noun in own), true)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _row(draw: Draw, log: Log, told: tuple[Sentence, ...], gap: Gap, story: int, number: int) -> dict[str, Any]:
    num_question = round(QUESTION_SHARE * len(told) / (1 - QUESTION_SHARE))
    actors = [own.actor for own in log.events]
    calm = [Sentence(_CALM[i], ()) for i in sorted(draw.sample(range(len(_CALM)), num_question - 4))]
    late = [own for own in idle() if own.masculine not in _EARLY]
    last = _mixed(draw, calm, [_idle(draw.choice(actors), own) for own in draw.sample(late, 2)])
    at = draw.below(len(last) + 1)
    question = [*(own.text for own in last[:at]), gap.text, *(own.text for own in last[at:]), draw.choice(_ENDS)]
    named = Counter(lemma for own in (*told, *last) for lemma in own.lemmas)
    named.update(_in_gap_sentence(gap, log))
    order = draw.shuffled(range(len(gap.options)))
    frequent = max(order, key=lambda i: named[gap.lemmas[i]])  # the first shown of equally frequent ones
    return {
        "context": " ".join(own.text for own in told),
        "question": " ".join(question),
        "options": [gap.options[i] for i in order],
        "answer": gap.options[gap.true.index(True)],
        "storyId": story,
        "taskType": gap.type,
        "md_num_context_sents": len(told),
        "md_num_question_sents": len(question),
        "md_n_question_sents_share": QUESTION_SHARE,
        "md_sequential_number": number % PER_STORY,
        "md_global_number": number,
        "md_form": gap.form,
        "md_gap_sentence": gap.text,
        "md_opts_baseline_most_frequent": [gap.options[frequent]],
        "md_mentions": [named[gap.lemmas[i]] for i in order],
        "md_events": [[own.actor.lemma, own.verb.lemma, own.thing.lemma] for own in log.events],
        "md_gifts": [[own.giver.lemma, own.thing.lemma, own.taker.lemma] for own in log.gifts],
    }


def _in_gap_sentence(gap: Gap, log: Log) -> list[str]:
    """Lemmas that the gap's own sentence names."""
    words = set(re.findall(r"\w+", gap.text.lower()))
    nouns_named = [noun for own in log.events for noun in (own.actor, own.thing) if words & set(noun.forms)]
    verbs_named = [own.verb for own in log.events if words & set(own.verb.past)]
    return [own.lemma for own in (*nouns_named, *verbs_named)]
