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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from miron_jax.files.readers import JsonObject
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.eval_uation_gen.gaps import GAP, QUESTION_SHARE
from miron_jax.tasks.generators.eval_uation_gen.story_words import TASK_TYPES
from miron_jax.tasks.generators.eval_uation_gen.table import VERSION
from tools.eval_uation_gen.lexicon import (
    Idle,
    Noun,
    StoryCase,
    Verb,
    idle,
    nouns,
    places,
    verbs,
)
from tools.eval_uation_gen.numerals import Gender

CAST = 6
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
_WHOM: dict[Gender, str] = {"m": "який", "f": "яку", "n": "яке"}
_OF_ACTOR: dict[str, dict[Gender, str]] = {  # words that agree with the animal
    "himself": {"m": "сам", "f": "сама"},
    "pronoun": {"m": "він", "f": "вона"},
    "narrated": {"m": "розповідав", "f": "розповідала"},
    "stood": {"m": "стояв", "f": "стояла"},
    "was_proud": {"m": "пишався", "f": "пишалася"},
    "was_glad": {"m": "радів", "f": "раділа"},
    "gave": {"m": "віддав", "f": "віддала"},
}


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

    @property
    def actors(self) -> list[Noun]:
        return [event.actor for event in self.events]

    @property
    def verbs(self) -> list[Verb]:
        return [event.verb for event in self.events]

    @property
    def things(self) -> list[Noun]:
        return [event.thing for event in self.events]

    def taker(self, thing: Noun) -> Noun | None:
        """The owner at the end; None: the story does not say."""
        return next((gift.taker for gift in self.gifts if gift.thing == thing), None)


class GapSentence(NamedTuple):
    """A sentence with a gap, its options, and which of them the log makes true."""

    type: Literal["NAMED_ENTITY", "COMMON_NOUN", "VERB"]
    form: str  # the case of a noun, "past" of a verb
    text: str
    options: list[str]
    lemmas: list[str]
    true: list[bool]


class Sentence(NamedTuple):
    text: str
    lemmas: Sequence[str]  # of animals, things and doings that it names


def rows_of(split: str, count: int) -> list[JsonObject]:
    """The rows of ua_cbt: PER_STORY of each story."""
    rows: list[JsonObject] = []
    for story in range(-(-count // PER_STORY)):
        draw = Stream("eval-ua-tion-gen", VERSION, "ua_cbt", split, story)
        log = _sample_log(draw)
        gaps = _sample_gaps(draw, log)
        context = _context(draw, log)
        for gap in gaps:
            rows.append(_row(draw, log, context, gap, story, len(rows)))
    return rows[:count]


def _sample_log(draw: Stream) -> Log:
    cast_gender = draw.choice(("m", "f"))
    thing_gender = draw.choice(("m", "f", "n"))
    actors = draw.sample(nouns("animal", cast_gender), CAST)
    things = draw.sample(nouns("thing", thing_gender), CAST)
    actions = draw.sample(verbs(), CAST)
    while sum(verb.keeps for verb in actions) < 3:
        actions = draw.sample(verbs(), CAST)
    events = tuple(map(Event, actors, actions, things))
    before_gifts = draw.sample([event for event in events if event.verb.keeps], 1 + draw.below(3))
    gifts = []
    for event in before_gifts:
        takers = [actor for actor in actors if actor != event.actor]
        gifts.append(Gift(event.actor, event.thing, draw.choice(takers)))
    return Log(events, tuple(gifts))


def _context(draw: Stream, log: Log) -> tuple[Sentence, ...]:
    """The story before its question: 13 sentences."""
    opening = [_listing(draw, _INTROS, log.actors), _listing(draw, _THINGS, log.things)]
    times = draw.choice(_TIMES)
    event_places = draw.sample(places(), CAST)
    shuffled = draw.shuffled(log.events)
    events = list(map(partial(_event, draw), shuffled, times, event_places))
    doings = draw.sample(idle(), 5 - len(log.gifts))
    rest = [_idle(draw.choice(log.actors), doing) for doing in doings]
    return (*opening, *_mixed(draw, events, rest), *map(_gift, log.gifts))


def _lemmas(words: Iterable[Noun | Verb]) -> list[str]:
    return [word.lemma for word in words]


def _listing(draw: Stream, templates: Sequence[str], listed: Sequence[Noun]) -> Sentence:
    names = [noun.form("nom") for noun in draw.shuffled(listed)]
    text = draw.choice(templates).format(names=f"{', '.join(names[:-1])} та {names[-1]}")
    return Sentence(text, _lemmas(listed))


def _event(draw: Stream, event: Event, time: str, place: str) -> Sentence:
    actor = event.actor.form("nom")
    verb = event.verb.by(event.actor.gender)
    thing = event.thing.form("acc")
    order = draw.choice(
        ("{time} {actor} {place} {verb} {thing}.", "{time} {place} {actor} {verb} {thing}.")
    )
    text = order.format(time=time, actor=actor, verb=verb, thing=thing, place=place)
    return Sentence(text, _lemmas(event))


def _gift(gift: Gift) -> Sentence:
    giver = gift.giver.form("nom")
    thing = gift.thing.form("acc")
    taker = gift.taker.form("dat")
    text = f"Потім {giver} назавжди {_OF_ACTOR['gave'][gift.giver.gender]} {taker} {thing}."
    return Sentence(text, _lemmas(gift))


def _idle(actor: Noun, doing: Idle) -> Sentence:
    return Sentence(f"{_capital(actor.form('nom'))} {doing.by(actor.gender)}.", (actor.lemma,))


def _mixed(draw: Stream, first: list[Sentence], second: list[Sentence]) -> list[Sentence]:
    """Both lists interleaved, each in its order."""
    second_idxs = draw.sample(range(len(first) + len(second)), len(second))
    mixed = list(first)
    for i, sentence in zip(sorted(second_idxs), second, strict=True):
        mixed.insert(i, sentence)
    return mixed


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


def _sample_gaps(draw: Stream, log: Log) -> list[GapSentence]:
    """Two gaps of each type, each about another event, in a sampled template of the event."""
    gaps = []
    for gaps_of in (_animal_gaps, _thing_gaps, _verb_gaps):
        events = draw.sample(log.events, PER_STORY // len(TASK_TYPES))
        gaps += [draw.choice(gaps_of(event, log)) for event in events]
    return gaps


def _animal_gaps(event: Event, log: Log) -> list[GapSentence]:
    did = [event._replace(actor=actor) in log.events for actor in log.actors]
    gaps = []
    for case, text in _ANIMAL_TEMPLATES.items():
        gaps.append(_gap("NAMED_ENTITY", case, text, event, log.actors, did))
    taker = log.taker(event.thing)
    if taker is not None:
        has = [actor == taker for actor in log.actors]
        gaps.append(_gap("NAMED_ENTITY", "gen", _OWNER_TEMPLATE, event, log.actors, has))
    return gaps


def _thing_gaps(event: Event, log: Log) -> list[GapSentence]:
    did = [event._replace(thing=thing) in log.events for thing in log.things]
    templates: list[tuple[StoryCase, str]] = [("acc", _NARRATED_TEMPLATE)]
    if event.verb.keeps and log.taker(event.thing) is None:
        templates += _KEPT_TEMPLATES.items()
    return [_gap("COMMON_NOUN", case, text, event, log.things, did) for case, text in templates]


def _verb_gaps(event: Event, log: Log) -> list[GapSentence]:
    did = [event._replace(verb=verb) in log.events for verb in log.verbs]
    options = [verb.by(event.actor.gender) for verb in log.verbs]
    gaps = []
    for template in _VERB_TEMPLATES:
        text = template.format(**_words(event))
        gaps.append(GapSentence("VERB", "past", text, options, _lemmas(log.verbs), did))
    return gaps


def _gap(
    kind: Literal["NAMED_ENTITY", "COMMON_NOUN"],
    case: StoryCase,
    text: str,
    event: Event,
    candidates: Sequence[Noun],
    true: list[bool],
) -> GapSentence:
    text = text.format(**_words(event))
    options = [noun.form(case) for noun in candidates]
    return GapSentence(kind, case, text, options, _lemmas(candidates), true)


def _words(event: Event) -> dict[str, str]:
    """The words of an event that templates name."""
    gender = event.actor.gender
    actor = event.actor.form("nom")
    return {
        "actor": actor,
        "Actor": _capital(actor),
        "verb": event.verb.by(gender),
        "thing": event.thing.form("acc"),
        "whom": _WHOM[event.thing.gender],
        **{name: forms[gender] for name, forms in _OF_ACTOR.items()},
    }


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _row(
    draw: Stream,
    log: Log,
    context: tuple[Sentence, ...],
    gap: GapSentence,
    story: int,
    number: int,
) -> JsonObject:
    num_question = round(QUESTION_SHARE * len(context) / (1 - QUESTION_SHARE))
    calm_idxs = draw.sample(range(len(_CALM)), num_question - 4)
    calm = [Sentence(_CALM[i], ()) for i in sorted(calm_idxs)]
    late = [doing for doing in idle() if doing.masculine not in _EARLY]
    doings = [_idle(draw.choice(log.actors), doing) for doing in draw.sample(late, 2)]
    evening = _mixed(draw, calm, doings)
    question = [sentence.text for sentence in evening]
    question.insert(draw.below(len(evening) + 1), gap.text)
    question.append(draw.choice(_ENDS))
    mentions = Counter(_in_gap_sentence(gap, log))
    for sentence in (*context, *evening):
        mentions.update(sentence.lemmas)
    order = draw.shuffled(range(len(gap.options)))
    options = [gap.options[i] for i in order]
    counts = [mentions[gap.lemmas[i]] for i in order]
    return {
        "context": " ".join(sentence.text for sentence in context),
        "question": " ".join(question),
        "options": options,
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
        # of equally frequent ones the first option
        "md_opts_baseline_most_frequent": [options[counts.index(max(counts))]],
        "md_mentions": counts,
        "md_events": list(map(_lemmas, log.events)),
        "md_gifts": list(map(_lemmas, log.gifts)),
    }


def _in_gap_sentence(gap: GapSentence, log: Log) -> list[str]:
    """Lemmas that the sentence with the gap names."""
    words = set(re.findall(r"\w+", gap.text.lower()))
    nouns_named = [noun for noun in (*log.actors, *log.things) if words & set(noun.forms)]
    verbs_named = [verb for verb in log.verbs if words & set(verb.past)]
    return _lemmas((*nouns_named, *verbs_named))
