"""Stories with a gap, in the manner of UA-CBT: each story tells an event log, which decides what
may fill the gap.

Arrives: the number of rows.  Leaves: rows in the published shape.  It deliberately does not know
models.

In each story six animals of one gender do six different things to six different objects of one
gender; some objects are given away afterwards.  The last 35 % of the sentences recall one of these
facts and leave a word out: an animal (NAMED_ENTITY), an object (COMMON_NOUN) or an action (VERB).
The options are the six of the story in the form that the gap takes, so grammar excludes none, and
the log makes exactly one of them true.  The context names all six.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from miron_jax.files.readers import JsonObject
from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.eval_uation_gen.lexicon import (
    Idle,
    Noun,
    StoryCase,
    Verb,
    idle,
    nouns,
    places,
    verbs,
)
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
    "Стежка заросла травою.", "Пахло чебрецем і медом.", "Десь удалині загуркотів грім.",
    "Вітер нарешті вщух.",
    "Сонце хилилося за обрій.", "Увечері всі зібралися біля багаття.",
    "У казані тихо булькала каша.",
    "Вогонь потріскував і сипав іскрами.", "Ніхто нікуди не поспішав.",
    "Над долиною підіймався туман.",
    "Над головами засвітилися перші зорі.", "Розмова тривала до пізньої ночі.",
)  # fmt: skip
_ENDS = (
    "На тому й розійшлися по домівках.",
    "На ранок усе пішло своїм ладом.",
    "Відтоді минуло багато років.",
)
_EARLY = ("грівся під ранковим сонцем", "прокинувся ще до світанку")  # not in the evening
_HIMSELF: dict[Gender, str] = {"m": "сам", "f": "сама", "n": "саме"}
_PRONOUN: dict[Gender, str] = {"m": "він", "f": "вона", "n": "воно"}
_WHOM: dict[Gender, str] = {"m": "який", "f": "яку", "n": "яке"}
_PAST = {
    "narrated": ("розповідав", "розповідала"),
    "stood": ("стояв", "стояла"),
    "was_proud": ("пишався", "пишалася"),
    "was_glad": ("радів", "раділа"),
}
_GAVE: dict[Gender, str] = {"m": "віддав", "f": "віддала", "n": "віддало"}


class Event(NamedTuple):
    """An actor did something to an object."""

    actor: Noun
    verb: Verb
    thing: Noun


class Gift(NamedTuple):
    giver: Noun
    thing: Noun
    taker: Noun


@dataclass(frozen=True, slots=True)
class Log:
    """What happens in a story: six events, then gifts, each of another object."""

    events: tuple[Event, ...]
    gifts: tuple[Gift, ...]

    def taker(self, thing: Noun) -> Noun | None:
        """The owner at the end; None: the story does not say."""
        return next((gift.taker for gift in self.gifts if gift.thing == thing), None)


class Gap(NamedTuple):
    """A sentence with a gap, its options, and which of them the log makes true."""

    type: Literal["NAMED_ENTITY", "COMMON_NOUN", "VERB"]
    form: str  # the case of a noun, "past" of a verb
    text: str
    options: tuple[str, ...]
    lemmas: tuple[str, ...]
    true: tuple[bool, ...]


class Sentence(NamedTuple):
    text: str
    lemmas: tuple[str, ...]  # of animals, things and doings that it names


def rows_of(split: str, count: int) -> list[JsonObject]:
    """The rows of ua_cbt: PER_STORY of each story."""
    rows: list[JsonObject] = []
    for story in range(-(-count // PER_STORY)):
        draw = Draw("eval-ua-tion-gen", VERSION, "ua_cbt", split, story)
        log = _sample_log(draw)
        gaps = _sample_gaps(draw, log)
        context = _context(draw, log)
        rows += [_row(draw, log, context, gap, story, len(rows) + i) for i, gap in enumerate(gaps)]
    return rows[:count]


def _sample_log(draw: Draw) -> Log:
    cast_gender = draw.choice(("m", "f"))
    thing_gender = draw.choice(("m", "f", "n"))
    actors = draw.sample(nouns("animal", cast_gender), CAST)
    things = draw.sample(nouns("thing", thing_gender), CAST)
    actions = draw.sample(verbs(), CAST)
    while sum(verb.keeps for verb in actions) < 3:
        actions = draw.sample(verbs(), CAST)
    events = tuple(map(Event, actors, actions, things))
    before_gifts = draw.sample([event for event in events if event.verb.keeps], 1 + draw.below(3))
    gifts = [
        Gift(e.actor, e.thing, draw.choice([a for a in actors if a != e.actor]))
        for e in before_gifts
    ]
    return Log(events, tuple(gifts))


def _context(draw: Draw, log: Log) -> tuple[Sentence, ...]:
    """The story before its question: 13 sentences."""
    actors = [event.actor for event in log.events]
    things = [event.thing for event in log.events]
    opening = [_listing(draw, _INTROS, actors), _listing(draw, _THINGS, things)]
    times = draw.choice(_TIMES)
    event_places = draw.sample(places(), CAST)
    shuffled = draw.shuffled(log.events)
    events = [
        _event(draw, event, *at) for event, *at in zip(shuffled, times, event_places, strict=True)
    ]
    gifts = [_gift(gift) for gift in log.gifts]
    doings = draw.sample(idle(), 5 - len(gifts))
    rest = [_idle(draw.choice(actors), doing) for doing in doings]
    return (*opening, *_mixed(draw, events, rest), *gifts)


def _listing(draw: Draw, templates: Sequence[str], listed: Sequence[Noun]) -> Sentence:
    names = [noun.form("nom") for noun in draw.shuffled(listed)]
    text = draw.choice(templates).format(names=f"{', '.join(names[:-1])} та {names[-1]}")
    return Sentence(text, tuple(noun.lemma for noun in listed))


def _event(draw: Draw, event: Event, time: str, place: str) -> Sentence:
    actor = event.actor.form("nom")
    verb = event.verb.by(event.actor.gender)
    thing = event.thing.form("acc")
    order = draw.choice(
        ("{time} {actor} {place} {verb} {thing}.", "{time} {place} {actor} {verb} {thing}.")
    )
    text = order.format(time=time, actor=actor, verb=verb, thing=thing, place=place)
    return Sentence(text, (event.actor.lemma, event.verb.lemma, event.thing.lemma))


def _gift(gift: Gift) -> Sentence:
    giver = gift.giver.form("nom")
    thing = gift.thing.form("acc")
    taker = gift.taker.form("dat")
    text = f"Потім {giver} назавжди {_GAVE[gift.giver.gender]} {taker} {thing}."
    return Sentence(text, (gift.giver.lemma, gift.thing.lemma, gift.taker.lemma))


def _idle(actor: Noun, doing: Idle) -> Sentence:
    return Sentence(f"{_capital(actor.form('nom'))} {doing.by(actor.gender)}.", (actor.lemma,))


def _mixed(draw: Draw, first: list[Sentence], second: list[Sentence]) -> list[Sentence]:
    """Both lists interleaved, each in its order."""
    second_idxs = set(draw.sample(range(len(first) + len(second)), len(second)))
    a = iter(first)
    b = iter(second)
    return [next(b) if i in second_idxs else next(a) for i in range(len(first) + len(second))]


# Sentences that recall an event; {words} are those of `_words`.
_ANIMAL_TEMPLATES: dict[StoryCase, str] = {
    "nom": f"Усі пригадали, що {{thing}} {{verb}} саме {GAP} .",
    "gen": f"Усі сіли навколо {GAP} , бо саме {{pronoun}} {{verb}} {{thing}}.",
    "dat": f"Того вечора дивувалися найбільше {GAP} , бо саме {{pronoun}} {{verb}} {{thing}}.",
    "acc": f"Слухали передусім {GAP} , бо саме {{pronoun}} {{verb}} {{thing}}.",
    "ins": f"Жартували найчастіше над {GAP} , бо саме {{pronoun}} {{verb}} {{thing}}.",
}
# recalls a gift
_OWNER_TEMPLATE = f"Наприкінці {{thing}} можна було знайти хіба що в хатці {GAP} ."
_NARRATED_TEMPLATE = f"{{Actor}} довго {{narrated}}, як {{verb}} {GAP} ."
_KEPT_TEMPLATES: dict[StoryCase, str] = {  # only of a thing that the actor still has
    "gen": f"{{Actor}} ще довго {{stood}} біля {GAP} , {{whom}} {{himself}} {{verb}}.",
    "ins": f"{{Actor}} {{was_proud}} {GAP} , {{whom}} {{himself}} {{verb}}.",
    "dat": f"{{Actor}} щиро {{was_glad}} {GAP} , {{whom}} {{himself}} {{verb}}.",
}
_VERB_TEMPLATES = (
    f"Ніхто не сперечався: {{actor}} таки {GAP} {{thing}}.",
    f"Найдовше згадували, як {{actor}} {GAP} {{thing}}.",
)


def _sample_gaps(draw: Draw, log: Log) -> list[Gap]:
    """Two gaps of each type, each about another event, in a sampled template of the event."""
    gaps = []
    for gaps_of in (_animal_gaps, _thing_gaps, _verb_gaps):
        events = draw.sample(log.events, PER_STORY // len(TASK_TYPES))
        gaps += [draw.choice(gaps_of(event, log)) for event in events]
    return gaps


def _animal_gaps(event: Event, log: Log) -> list[Gap]:
    actors = [other.actor for other in log.events]
    did = tuple(event._replace(actor=actor) in log.events for actor in actors)
    gaps = [
        _gap("NAMED_ENTITY", case, text, event, actors, did)
        for case, text in _ANIMAL_TEMPLATES.items()
    ]
    if (taker := log.taker(event.thing)) is None:
        return gaps
    has = tuple(actor == taker for actor in actors)
    return [*gaps, _gap("NAMED_ENTITY", "gen", _OWNER_TEMPLATE, event, actors, has)]


def _thing_gaps(event: Event, log: Log) -> list[Gap]:
    things = [other.thing for other in log.events]
    did = tuple(event._replace(thing=thing) in log.events for thing in things)
    templates: list[tuple[StoryCase, str]] = [("acc", _NARRATED_TEMPLATE)]
    if event.verb.keeps and log.taker(event.thing) is None:
        templates += _KEPT_TEMPLATES.items()
    return [_gap("COMMON_NOUN", case, text, event, things, did) for case, text in templates]


def _verb_gaps(event: Event, log: Log) -> list[Gap]:
    verbs_done = [other.verb for other in log.events]
    did = tuple(event._replace(verb=verb) in log.events for verb in verbs_done)
    options = tuple(verb.by(event.actor.gender) for verb in verbs_done)
    lemmas = tuple(verb.lemma for verb in verbs_done)
    return [
        Gap("VERB", "past", text.format(**_words(event)), options, lemmas, did)
        for text in _VERB_TEMPLATES
    ]


def _gap(
    kind: Literal["NAMED_ENTITY", "COMMON_NOUN"],
    case: StoryCase,
    text: str,
    event: Event,
    candidates: Sequence[Noun],
    true: tuple[bool, ...],
) -> Gap:
    options, lemmas = zip(*((noun.form(case), noun.lemma) for noun in candidates), strict=True)
    return Gap(kind, case, text.format(**_words(event)), options, lemmas, true)


def _words(event: Event) -> dict[str, str]:
    """The words of an event that templates name."""
    gender = event.actor.gender
    actor = event.actor.form("nom")
    return {
        "actor": actor,
        "Actor": _capital(actor),
        "verb": event.verb.by(gender),
        "thing": event.thing.form("acc"),
        "pronoun": _PRONOUN[gender],
        "himself": _HIMSELF[gender],
        "whom": _WHOM[event.thing.gender],
        **{
            name: masculine if gender == "m" else feminine
            for name, (masculine, feminine) in _PAST.items()
        },
    }


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _row(
    draw: Draw, log: Log, context: tuple[Sentence, ...], gap: Gap, story: int, number: int
) -> JsonObject:
    num_question = round(QUESTION_SHARE * len(context) / (1 - QUESTION_SHARE))
    actors = [event.actor for event in log.events]
    calm = [
        Sentence(_CALM[i], ()) for i in sorted(draw.sample(range(len(_CALM)), num_question - 4))
    ]
    late = [doing for doing in idle() if doing.masculine not in _EARLY]
    evening = _mixed(
        draw, calm, [_idle(draw.choice(actors), doing) for doing in draw.sample(late, 2)]
    )
    question = [sentence.text for sentence in evening]
    question.insert(draw.below(len(evening) + 1), gap.text)
    question.append(draw.choice(_ENDS))
    mentions = Counter(lemma for sentence in (*context, *evening) for lemma in sentence.lemmas)
    mentions.update(_in_gap_sentence(gap, log))
    order = draw.shuffled(range(len(gap.options)))
    # of equally frequent ones the first option
    most_frequent = max(order, key=lambda i: mentions[gap.lemmas[i]])
    return {
        "context": " ".join(sentence.text for sentence in context),
        "question": " ".join(question),
        "options": [gap.options[i] for i in order],
        "answer": gap.options[gap.true.index(True)],
        "storyId": story,
        "taskType": gap.type,
        "md_num_context_sents": len(context),
        "md_num_question_sents": len(question),
        "md_n_question_sents_share": QUESTION_SHARE,
        "md_sequential_number": number % PER_STORY,
        "md_global_number": number,
        "md_form": gap.form,
        "md_gap_sentence": gap.text,
        "md_opts_baseline_most_frequent": [gap.options[most_frequent]],
        "md_mentions": [mentions[gap.lemmas[i]] for i in order],
        "md_events": [
            [event.actor.lemma, event.verb.lemma, event.thing.lemma] for event in log.events
        ],
        "md_gifts": [[gift.giver.lemma, gift.thing.lemma, gift.taker.lemma] for gift in log.gifts],
    }


def _in_gap_sentence(gap: Gap, log: Log) -> list[str]:
    """Lemmas that the sentence with the gap names."""
    words = set(re.findall(r"\w+", gap.text.lower()))
    nouns_named = [
        noun
        for event in log.events
        for noun in (event.actor, event.thing)
        if words & set(noun.forms)
    ]
    verbs_named = [event.verb for event in log.events if words & set(event.verb.past)]
    return [word.lemma for word in (*nouns_named, *verbs_named)]
