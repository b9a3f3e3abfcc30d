"""English tables of the Facts category: what is asked, in which words, and the one answer.

Arrives: nothing.  Leaves: `FACTS`.  It deliberately does not know how items are drawn.

Left out on purpose: what has a second name or spelling (Kyiv, gray, sulfur), what was renamed or is disputed (Astana),
what shares its name with its answer (Tunisia).  Every answer after "a" begins with a consonant.
"""

from miron_jax.tasks.miron_gen.facts import Facts, Table, rows

# fmt: off
_CAPITAL = Table(
    name="capital",
    form_names=("country",),
    rows=rows(
        ("France", "Paris"), ("Italy", "Rome"), ("Spain", "Madrid"), ("Portugal", "Lisbon"), ("Germany", "Berlin"),
        ("Austria", "Vienna"), ("Poland", "Warsaw"), ("Hungary", "Budapest"), ("Greece", "Athens"),
        ("Sweden", "Stockholm"), ("Norway", "Oslo"), ("Denmark", "Copenhagen"), ("Finland", "Helsinki"),
        ("Ireland", "Dublin"), ("Belgium", "Brussels"), ("Romania", "Bucharest"), ("Bulgaria", "Sofia"),
        ("Serbia", "Belgrade"), ("Croatia", "Zagreb"), ("Slovenia", "Ljubljana"), ("Slovakia", "Bratislava"),
        ("Estonia", "Tallinn"), ("Latvia", "Riga"), ("Lithuania", "Vilnius"), ("Russia", "Moscow"),
        ("Armenia", "Yerevan"), ("Azerbaijan", "Baku"), ("Albania", "Tirana"), ("Turkey", "Ankara"),
        ("Egypt", "Cairo"), ("Morocco", "Rabat"), ("Libya", "Tripoli"), ("Kenya", "Nairobi"), ("Ghana", "Accra"),
        ("Senegal", "Dakar"), ("Uganda", "Kampala"), ("Zambia", "Lusaka"), ("Angola", "Luanda"),
        ("Cuba", "Havana"), ("Jamaica", "Kingston"), ("Peru", "Lima"), ("Uruguay", "Montevideo"),
        ("Venezuela", "Caracas"), ("Ecuador", "Quito"), ("Canada", "Ottawa"), ("Japan", "Tokyo"),
        ("Vietnam", "Hanoi"), ("Iraq", "Baghdad"), ("Lebanon", "Beirut"), ("Australia", "Canberra"),
    ),
    templates=(
        "The capital city of {country} is called",
        "Ask anyone to name the capital of {country}, and you will hear",
        "Visitors who want to see the capital of {country} fly to",
        "{country} has its seat of government in the city of",
        "In an atlas, the map of {country} marks the capital with a star beside the name",
    ),
    training_templates=(
        "The capital of {country} is {answer}.",
        "{answer} is the capital of {country}.",
        "Among the cities of {country}, the capital is {answer}.",
        "Ministers of {country} work in {answer}, the capital.",
    ),
)

_LANGUAGE = Table(
    name="language",
    form_names=("country",),
    rows=rows(
        ("France", "French"), ("Austria", "German"), ("Italy", "Italian"),
        ("Poland", "Polish"), ("Portugal", "Portuguese"), ("Brazil", "Portuguese"), ("Angola", "Portuguese"),
        ("Greece", "Greek"), ("Hungary", "Hungarian"), ("Sweden", "Swedish"), ("Denmark", "Danish"),
        ("Bulgaria", "Bulgarian"), ("Romania", "Romanian"), ("Cuba", "Spanish"), ("Colombia", "Spanish"),
        ("Argentina", "Spanish"), ("Egypt", "Arabic"), ("Libya", "Arabic"), ("Jordan", "Arabic"),
        ("Turkey", "Turkish"), ("Vietnam", "Vietnamese"), ("Estonia", "Estonian"), ("Latvia", "Latvian"),
        ("Lithuania", "Lithuanian"), ("Croatia", "Croatian"), ("Armenia", "Armenian"), ("Jamaica", "English"),
    ),
    templates=(
        "The official language of {country} is",
        "Schoolbooks in {country} are printed in",
        "A new law passed in {country} is published in",
        "Government offices in {country} do their paperwork in",
    ),
    training_templates=(
        "{answer} is the official language of {country}.",
        "People in {country} speak {answer}.",
        "Before you move to {country}, learn {answer}.",
        "The language that {country} uses in its schools is {answer}.",
    ),
)

_CONTINENT = Table(
    name="continent",
    form_names=("country",),
    rows=rows(
        ("Kenya", "Africa"), ("Ghana", "Africa"), ("Senegal", "Africa"), ("Uganda", "Africa"), ("Zambia", "Africa"),
        ("Angola", "Africa"), ("Nigeria", "Africa"), ("Algeria", "Africa"), ("Morocco", "Africa"),
        ("Ethiopia", "Africa"), ("Mali", "Africa"), ("Rwanda", "Africa"), ("Botswana", "Africa"),
        ("Japan", "Asia"), ("India", "Asia"), ("China", "Asia"), ("Thailand", "Asia"), ("Vietnam", "Asia"),
        ("Nepal", "Asia"), ("Iran", "Asia"), ("Iraq", "Asia"), ("Pakistan", "Asia"), ("Mongolia", "Asia"),
        ("Laos", "Asia"), ("Cambodia", "Asia"), ("Bangladesh", "Asia"),
        ("Italy", "Europe"), ("Poland", "Europe"), ("Austria", "Europe"), ("Hungary", "Europe"),
        ("Sweden", "Europe"), ("Norway", "Europe"), ("Belgium", "Europe"), ("Finland", "Europe"),
        ("Ireland", "Europe"), ("Romania", "Europe"), ("Croatia", "Europe"), ("Switzerland", "Europe"),
        ("Germany", "Europe"), ("Albania", "Europe"),
    ),
    templates=(
        "On the globe, {country} belongs to the continent of",
        "Of all the continents, the one that includes {country} is",
        "A geography book lists {country} among the countries of",
        "Sort the nations by continent, and {country} goes under",
    ),
    training_templates=(
        "{country} lies in {answer}.",
        "{answer} is the continent of {country}.",
        "A trip to {country} is a trip to {answer}.",
        "The continent on which you find {country} is {answer}.",
    ),
    more_answers=("Antarctica", "Australia"),
)

_SYMBOL = Table(
    name="symbol",
    form_names=("element",),
    rows=rows(
        ("gold", "Au"), ("silver", "Ag"), ("iron", "Fe"), ("copper", "Cu"), ("lead", "Pb"), ("tin", "Sn"),
        ("zinc", "Zn"), ("mercury", "Hg"), ("sodium", "Na"), ("magnesium", "Mg"), ("platinum", "Pt"),
        ("palladium", "Pd"), ("chlorine", "Cl"), ("chromium", "Cr"), ("manganese", "Mn"), ("cadmium", "Cd"),
        ("antimony", "Sb"), ("plutonium", "Pu"), ("zirconium", "Zr"), ("radon", "Rn"), ("strontium", "Sr"),
        ("oxygen", "O"), ("hydrogen", "H"), ("carbon", "C"), ("nitrogen", "N"), ("phosphorus", "P"),
        ("potassium", "K"), ("iodine", "I"), ("fluorine", "F"), ("uranium", "U"), ("tungsten", "W"),
        ("helium", "He"), ("neon", "Ne"), ("calcium", "Ca"), ("nickel", "Ni"), ("silicon", "Si"), ("cobalt", "Co"),
    ),
    templates=(
        "The chemical symbol for {element} is",
        "In the periodic table, {element} has the symbol",
        "Chemists abbreviate {element} as",
        "Instead of the whole word {element}, a formula shows just",
    ),
    training_templates=(
        "{answer} is the symbol of {element}.",
        "The element {element} is written {answer}.",
        "Every formula that contains {element} has {answer} in it.",
    ),
)

_ELEMENT = Table(
    name="element",
    form_names=("symbol",),
    rows=rows(
        ("Au", "gold"), ("Ag", "silver"), ("Fe", "iron"), ("Cu", "copper"), ("Pb", "lead"), ("Sn", "tin"),
        ("Zn", "zinc"), ("Hg", "mercury"), ("Na", "sodium"), ("Mg", "magnesium"), ("Pt", "platinum"),
        ("Pd", "palladium"), ("Cl", "chlorine"), ("Cr", "chromium"), ("Mn", "manganese"), ("Cd", "cadmium"),
        ("Pu", "plutonium"), ("Rn", "radon"), ("Sr", "strontium"), ("He", "helium"), ("Ne", "neon"),
        ("Ca", "calcium"), ("Ni", "nickel"), ("Si", "silicon"), ("Li", "lithium"), ("Ar", "argon"),
        ("Ti", "titanium"), ("Ra", "radium"), ("Br", "bromine"), ("Co", "cobalt"),
    ),
    templates=(
        "The name of the chemical element with the symbol {symbol} is",
        "A student of chemistry knows that {symbol} stands for",
        "Wherever a formula says {symbol}, the substance contains",
        "On a chart of the elements, the box marked {symbol} is the one for",
    ),
    training_templates=(
        "{Answer} is the element whose symbol is {symbol}.",
        "The letters {symbol} mean {answer}.",
        "{symbol} is short for {answer}.",
    ),
)

_YOUNG = Table(
    name="young",
    form_names=("animal",),
    rows=rows(
        ("cow", "calf"), ("cat", "kitten"), ("dog", "puppy"), ("horse", "foal"), ("sheep", "lamb"), ("goat", "kid"),
        ("pig", "piglet"), ("duck", "duckling"), ("goose", "gosling"), ("swan", "cygnet"), ("hen", "chick"),
        ("kangaroo", "joey"), ("deer", "fawn"), ("frog", "tadpole"), ("bear", "cub"), ("lion", "cub"),
        ("tiger", "cub"), ("elephant", "calf"), ("whale", "calf"), ("giraffe", "calf"), ("dolphin", "calf"),
        ("zebra", "foal"), ("penguin", "chick"), ("koala", "joey"), ("donkey", "foal"), ("leopard", "cub"),
    ),
    templates=(
        "A baby {animal} is called a",
        "The young of the {animal} is known as a",
        "Before it is full-grown, every {animal} is a",
        "The right word for the offspring of the {animal} is",
    ),
    training_templates=(
        "A {answer} is a baby {animal}.",
        "Every {answer} grows into a big {animal}.",
        "Look at that young {animal}: people call it a {answer}.",
        "The mother of this {answer} is a grown {animal}.",
    ),
    arguable=(
        ("goose", "chick"), ("swan", "chick"), ("duck", "chick"), ("deer", "calf"), ("deer", "kid"), ("koala", "cub"),
    ),
)

_SOUND = Table(
    name="sound",
    form_names=("animals",),
    rows=rows(
        ("dogs", "bark"), ("cats", "meow"), ("cows", "moo"), ("ducks", "quack"), ("horses", "neigh"),
        ("lions", "roar"), ("bees", "buzz"), ("frogs", "croak"), ("owls", "hoot"), ("pigs", "oink"),
        ("roosters", "crow"), ("donkeys", "bray"), ("crows", "caw"), ("wolves", "howl"), ("snakes", "hiss"),
        ("turkeys", "gobble"), ("mice", "squeak"), ("doves", "coo"),
    ),
    templates=(
        "The verb for the sound that {animals} make is to",
        "In English, {animals} are said to",
        "When {animals} want to be heard, they",
        "Listen to the {animals} and you will notice how they",
    ),
    training_templates=(
        "{Animals} {answer}.",
        "To {answer} is what {animals} do with their voice.",
        "You will know {animals} by their noise, because {animals} {answer}.",
    ),
    arguable=(
        ("dogs", "howl"), ("dogs", "crow"), ("cats", "hiss"), ("cats", "howl"), ("crows", "croak"), ("pigs", "squeak"),
        ("turkeys", "hiss"), ("owls", "hiss"), ("wolves", "bark"), ("bees", "hiss"), ("doves", "hoot"),
    ),
)

_COLOR = Table(
    name="color",
    form_names=("thing",),
    rows=rows(
        ("snow", "white"), ("fresh milk", "white"), ("chalk", "white"), ("table salt", "white"),
        ("polar bears", "white"), ("coal", "black"), ("soot", "black"), ("tar", "black"), ("ravens", "black"),
        ("grass", "green"), ("cucumbers", "green"), ("spinach", "green"), ("broccoli", "green"),
        ("emeralds", "green"), ("blood", "red"), ("ripe tomatoes", "red"), ("ripe strawberries", "red"),
        ("rubies", "red"), ("ketchup", "red"), ("bananas", "yellow"), ("lemons", "yellow"),
        ("sunflowers", "yellow"), ("mustard", "yellow"), ("carrots", "orange"), ("pumpkins", "orange"),
        ("chocolate", "brown"), ("roasted coffee beans", "brown"), ("sapphires", "blue"),
        ("the clear daytime sky", "blue"), ("flamingos", "pink"), ("eggplants", "purple"), ("lavender", "purple"),
    ),
    templates=(
        "The usual color of {thing} is",
        "To draw a picture of {thing}, children pick a crayon that is",
        "Asked for the color of {thing}, nearly everyone says",
        "Seen from close up, the color of {thing} is",
    ),
    training_templates=(
        "{Answer} is the color of {thing}.",
        "The color that goes with {thing} is {answer}.",
        "Painters show {thing} in {answer}.",
    ),
    arguable=(
        ("chocolate", "white"), ("chocolate", "black"), ("roasted coffee beans", "black"), ("lemons", "green"),
        ("bananas", "green"), ("pumpkins", "yellow"), ("mustard", "brown"), ("lavender", "blue"),
        ("eggplants", "black"), ("sunflowers", "orange"), ("flamingos", "red"), ("flamingos", "orange"),
        ("coal", "brown"), ("grass", "brown"), ("tar", "brown"), ("carrots", "purple"),
        ("table salt", "pink"), ("rubies", "pink"), ("ripe tomatoes", "orange"), ("ripe tomatoes", "yellow"),
        ("grass", "yellow"),
    ),
)

_COUNT = Table(
    name="count",
    form_names=("things",),
    rows=rows(
        ("legs on a spider", "eight"), ("legs on an ant", "six"), ("legs on a dog", "four"),
        ("legs on a chicken", "two"), ("wings on an eagle", "two"), ("arms on an octopus", "eight"),
        ("eyes in a human face", "two"), ("toes on a human foot", "five"), ("sides in a triangle", "three"),
        ("sides in a square", "four"), ("sides in a pentagon", "five"), ("sides in a hexagon", "six"),
        ("sides in an octagon", "eight"), ("faces on a cube", "six"), ("corners on a cube", "eight"),
        ("edges on a cube", "twelve"), ("days in a week", "seven"), ("months in a year", "twelve"),
        ("seconds in a minute", "sixty"), ("minutes in an hour", "sixty"), ("years in a decade", "ten"),
        ("seasons in a year", "four"), ("wheels on a bicycle", "two"), ("wheels on a tricycle", "three"),
        ("wheels on an ordinary car", "four"), ("strings on a violin", "four"),
        ("strings on a standard guitar", "six"), ("planets in the solar system", "eight"),
        ("players in a soccer team on the field", "eleven"), ("players in a basketball team on the court", "five"),
        ("eggs in a dozen", "twelve"), ("signs in the zodiac", "twelve"), ("rings in the Olympic symbol", "five"),
        ("colors in a rainbow", "seven"), ("days in April", "thirty"), ("days in June", "thirty"),
        ("days in September", "thirty"), ("degrees in a right angle", "ninety"), ("legs on a tripod", "three"),
        ("humps on a Bactrian camel", "two"), ("inches in a foot", "twelve"), ("feet in a yard", "three"),
    ),
    templates=(
        "The number of {things} is",
        "Count the {things} and you get",
        "How many {things}? The answer is",
        "In a quiz about the number of {things}, you win if you say",
    ),
    training_templates=(
        "There are {answer} {things}.",
        "{Answer} is the number of {things}.",
        "A count of the {things} gives {answer}.",
    ),
    arguable=(("colors in a rainbow", "six"),),
)

_OPPOSITE = Table(
    name="opposite",
    form_names=("word",),
    rows=rows(
        ("hot", "cold"), ("cold", "hot"), ("wet", "dry"), ("dry", "wet"), ("clean", "dirty"), ("dirty", "clean"),
        ("heavy", "light"), ("dark", "light"), ("strong", "weak"), ("weak", "strong"), ("rich", "poor"),
        ("poor", "rich"), ("fast", "slow"), ("big", "small"), ("wide", "narrow"), ("narrow", "wide"),
        ("deep", "shallow"), ("shallow", "deep"), ("early", "late"), ("late", "early"), ("full", "empty"),
        ("empty", "full"), ("high", "low"), ("low", "high"), ("true", "false"), ("false", "true"),
        ("alive", "dead"), ("dead", "alive"), ("asleep", "awake"), ("awake", "asleep"), ("cheap", "expensive"),
        ("expensive", "cheap"), ("beautiful", "ugly"), ("ugly", "beautiful"), ("guilty", "innocent"),
        ("innocent", "guilty"), ("male", "female"), ("positive", "negative"), ("negative", "positive"),
        ("odd", "even"), ("public", "private"), ("private", "public"), ("ancient", "modern"), ("rough", "smooth"),
        ("northern", "southern"), ("eastern", "western"), ("happy", "sad"), ("thick", "thin"), ("tall", "short"),
    ),
    templates=(
        "The opposite of {word} is",
        "What is not {word} in the least, but quite the reverse, is",
        'In a list of antonyms, "{word}" is paired with',
        'Turn the meaning of "{word}" around, and you have',
    ),
    training_templates=(
        "{Answer} is the opposite of {word}.",
        "{Word} and {answer} are opposites.",
        "The antonym of {word} is {answer}.",
    ),
    arguable=(
        ("big", "short"), ("big", "thin"), ("tall", "low"), ("tall", "small"), ("high", "short"), ("high", "deep"),
        ("deep", "high"), ("thick", "narrow"), ("wide", "thin"), ("heavy", "thin"), ("heavy", "weak"),
        ("rich", "cheap"), ("poor", "expensive"), ("strong", "light"), ("strong", "thin"), ("rough", "even"),
        ("true", "negative"), ("positive", "false"), ("negative", "true"), ("fast", "late"),
    ),
)

_REVERSE = Table(
    name="reverse",
    form_names=("word",),
    rows=rows(
        ("day", "night"), ("night", "day"), ("north", "south"), ("south", "north"), ("east", "west"),
        ("west", "east"), ("up", "down"), ("down", "up"), ("inside", "outside"), ("outside", "inside"),
        ("above", "below"), ("top", "bottom"), ("bottom", "top"), ("left", "right"), ("front", "back"),
        ("always", "never"), ("never", "always"), ("everything", "nothing"), ("yes", "no"), ("buy", "sell"),
        ("sell", "buy"), ("win", "lose"), ("push", "pull"), ("pull", "push"), ("love", "hate"), ("hate", "love"),
        ("laugh", "cry"), ("friend", "enemy"), ("enemy", "friend"), ("success", "failure"), ("failure", "success"),
        ("war", "peace"), ("peace", "war"), ("life", "death"), ("death", "life"), ("heaven", "hell"),
        ("summer", "winter"), ("winter", "summer"), ("increase", "decrease"), ("decrease", "increase"),
        ("maximum", "minimum"), ("minimum", "maximum"), ("multiply", "divide"), ("add", "subtract"),
        ("past", "future"), ("future", "past"), ("before", "after"), ("after", "before"),
    ),
    templates=(
        'The word that means the opposite of "{word}" is',
        'In a dictionary of antonyms, beside "{word}" you will read',
        'Think of "{word}", then of its exact opposite:',
        'Players of the game of opposites hear "{word}" and must reply',
    ),
    training_templates=(
        "{Answer} is the opposite of {word}.",
        "{Word} and {answer} are opposites.",
        "The antonym of {word} is {answer}.",
    ),
    arguable=(
        ("up", "below"), ("up", "bottom"), ("down", "top"), ("above", "down"), ("above", "bottom"),
        ("top", "below"), ("top", "down"), ("bottom", "up"), ("win", "failure"), ("success", "lose"),
        ("increase", "minimum"), ("increase", "subtract"), ("decrease", "maximum"), ("add", "decrease"),
        ("multiply", "decrease"), ("yes", "never"), ("always", "no"), ("everything", "no"), ("love", "enemy"),
        ("friend", "hate"), ("past", "after"), ("past", "before"), ("before", "past"), ("after", "past"),
        ("future", "before"), ("before", "future"), ("maximum", "decrease"), ("minimum", "increase"),
    ),
)

_DAY = Table(
    name="day",
    form_names=("step",),
    rows=rows(
        ("day after Monday", "Tuesday"), ("day after Tuesday", "Wednesday"), ("day after Wednesday", "Thursday"),
        ("day after Thursday", "Friday"), ("day after Friday", "Saturday"), ("day after Saturday", "Sunday"),
        ("day after Sunday", "Monday"), ("day before Monday", "Sunday"), ("day before Tuesday", "Monday"),
        ("day before Wednesday", "Tuesday"), ("day before Thursday", "Wednesday"), ("day before Friday", "Thursday"),
        ("day before Saturday", "Friday"), ("day before Sunday", "Saturday"),
    ),
    templates=(
        "In every week, the {step} is",
        "What do we call the {step}? Its name is",
        "On the calendar, the {step} is labeled",
        "Children reciting the week know that the {step} is",
    ),
    training_templates=(
        "{answer} is the {step}.",
        "The {step} is {answer}.",
        "If it is the {step}, then it is {answer}.",
    ),
)

_MONTH = Table(
    name="month",
    form_names=("step",),
    rows=rows(
        ("month after January", "February"), ("month after February", "March"), ("month after March", "April"),
        ("month after April", "May"), ("month after May", "June"), ("month after June", "July"),
        ("month after July", "August"), ("month after August", "September"), ("month after September", "October"),
        ("month after October", "November"), ("month after November", "December"),
        ("month after December", "January"), ("month before January", "December"),
        ("month before February", "January"), ("month before March", "February"), ("month before April", "March"),
        ("month before May", "April"), ("month before June", "May"), ("month before July", "June"),
        ("month before August", "July"), ("month before September", "August"), ("month before October", "September"),
        ("month before November", "October"), ("month before December", "November"),
    ),
    templates=(
        "In every year, the {step} is",
        "What do we call the {step}? Its name is",
        "On the calendar, the {step} is labeled",
        "Leaf through a diary, and the {step} turns out to be",
    ),
    training_templates=(
        "{answer} is the {step}.",
        "The {step} is {answer}.",
        "If it is the {step}, then it is {answer}.",
    ),
)

_SEASON = Table(
    name="season",
    form_names=("step",),
    rows=rows(  # autumn may be asked about, but is no answer: some call it fall
        ("season after winter", "spring"), ("season after spring", "summer"), ("season after autumn", "winter"),
        ("season before spring", "winter"), ("season before summer", "spring"), ("season before autumn", "summer"),
    ),
    templates=(
        "Year after year, the {step} is",
        "What do we call the {step}? Its name is",
        "A gardener will tell you that the {step} is",
        "As the year goes round, the {step} turns out to be",
    ),
    training_templates=(
        "{Answer} is the {step}.",
        "The {step} is {answer}.",
        "If it is the {step}, then it is {answer}.",
    ),
    more_answers=("autumn",),
)

_PLANET = Table(
    name="planet",
    form_names=("clue",),
    rows=rows(
        ("first planet from the Sun", "Mercury"), ("second planet from the Sun", "Venus"),
        ("third planet from the Sun", "Earth"), ("fourth planet from the Sun", "Mars"),
        ("fifth planet from the Sun", "Jupiter"), ("sixth planet from the Sun", "Saturn"),
        ("seventh planet from the Sun", "Uranus"), ("eighth planet from the Sun", "Neptune"),
        ("next planet out after Mercury", "Venus"), ("next planet out after Venus", "Earth"),
        ("next planet out after Earth", "Mars"), ("next planet out after Mars", "Jupiter"),
        ("next planet out after Jupiter", "Saturn"), ("next planet out after Saturn", "Uranus"),
        ("next planet out after Uranus", "Neptune"), ("biggest planet of all", "Jupiter"),
        ("planet known as the Red Planet", "Mars"), ("planet that human beings live on", "Earth"),
    ),
    templates=(
        "In the solar system, the {clue} is",
        "What is the {clue} called? It is",
        "Astronomers agree that the {clue} bears the name",
        "The answer to a question about the {clue} is",
    ),
    training_templates=(
        "{answer} is the {clue}.",
        "The {clue} is {answer}.",
        "The name of the {clue} is {answer}.",
    ),
)

_KIND = Table(
    name="kind",
    form_names=("thing",),
    rows=rows(
        ("rose", "flower"), ("tulip", "flower"), ("daisy", "flower"), ("orchid", "flower"), ("daffodil", "flower"),
        ("oak", "tree"), ("birch", "tree"), ("maple", "tree"), ("willow", "tree"), ("fir", "tree"),
        ("eagle", "bird"), ("sparrow", "bird"), ("owl", "bird"), ("penguin", "bird"), ("parrot", "bird"),
        ("salmon", "fish"), ("trout", "fish"), ("tuna", "fish"), ("herring", "fish"), ("cod", "fish"),
        ("ant", "insect"), ("bee", "insect"), ("beetle", "insect"), ("mosquito", "insect"),
        ("grasshopper", "insect"), ("banana", "fruit"), ("pineapple", "fruit"), ("strawberry", "fruit"),
        ("peach", "fruit"), ("carrot", "vegetable"), ("cabbage", "vegetable"), ("onion", "vegetable"),
        ("turnip", "vegetable"), ("radish", "vegetable"), ("poodle", "dog"), ("collie", "dog"),
        ("dachshund", "dog"), ("beagle", "dog"), ("cobra", "snake"), ("viper", "snake"), ("sandal", "shoe"),
        ("sneaker", "shoe"), ("sombrero", "hat"), ("beret", "hat"), ("canoe", "boat"), ("kayak", "boat"),
        ("waltz", "dance"), ("tango", "dance"), ("foxtrot", "dance"), ("gecko", "lizard"), ("iguana", "lizard"),
    ),
    templates=(
        "The {thing} is a kind of",
        "Every {thing} is a type of",
        'The word "{thing}" is the name of a sort of',
        'Look up "{thing}" in the dictionary, and you read: a kind of',
    ),
    training_templates=(
        "One kind of {answer} is the {thing}.",
        "Everybody counts the {thing} as a {answer} of some kind.",
        "Is the {thing} a {answer}? Of course.",
    ),
    arguable=(("banana", "tree"), ("peach", "tree"), ("rose", "tree"), ("banana", "vegetable")),
)

_TOOL = Table(
    name="tool",
    form_names=("task",),
    rows=rows(
        ("drive in a nail", "hammer"), ("cut a board in half", "saw"), ("sweep the floor", "broom"),
        ("open a locked door", "key"), ("measure a fever", "thermometer"), ("look at distant stars", "telescope"),
        ("look at living cells", "microscope"), ("sew on a button", "needle"), ("eat soup", "spoon"),
        ("climb onto the roof", "ladder"), ("find out where north is", "compass"), ("turn a screw", "screwdriver"),
        ("pull the cork from a bottle", "corkscrew"), ("boil water for tea", "kettle"),
        ("draw a perfectly straight line", "ruler"), ("gather fallen leaves", "rake"),
        ("tighten a loose bolt", "wrench"), ("hit a tennis ball", "racket"), ("dig a hole", "shovel"),
        ("listen to a heartbeat", "stethoscope"),
    ),
    templates=(
        "In order to {task}, people use a",
        "Ask how to {task}, and you will be handed a",
        "Anyone who has to {task} needs a",
        "It is hard to {task} without a",
    ),
    training_templates=(
        "A {answer} helps you to {task}.",
        "You can {task} with a {answer}.",
        "Bring me the {answer}: I have to {task}.",
    ),
    arguable=(
        ("gather fallen leaves", "broom"), ("open a locked door", "screwdriver"), ("open a locked door", "hammer"),
        ("turn a screw", "wrench"), ("gather fallen leaves", "shovel"), ("tighten a loose bolt", "screwdriver"),
        ("dig a hole", "spoon"), ("dig a hole", "rake"), ("pull the cork from a bottle", "screwdriver"),
    ),
)

_SOURCE = Table(
    name="source",
    form_names=("product",),
    rows=rows(
        ("cheese", "milk"), ("yogurt", "milk"), ("wine", "grapes"), ("raisins", "grapes"), ("chocolate", "cocoa"),
        ("glass", "sand"), ("omelets", "eggs"), ("cider", "apples"), ("ketchup", "tomatoes"),
        ("French fries", "potatoes"), ("paper", "wood"), ("car tires", "rubber"), ("candles", "wax"),
        ("sauerkraut", "cabbage"), ("guacamole", "avocados"), ("steel", "iron"), ("bread", "flour"),
    ),
    templates=(
        "Most of the raw material for {product} is",
        "In order to make {product}, you start with",
        "A factory that produces {product} buys plenty of",
        "There would be no {product} without",
    ),
    training_templates=(
        "From {answer} people make {product}.",
        "The thing that {product} cannot do without is {answer}.",
        "To get {product}, take {answer}.",
    ),
    arguable=(
        ("chocolate", "milk"), ("bread", "milk"), ("bread", "eggs"), ("omelets", "milk"), ("wine", "apples"),
        ("bread", "potatoes"), ("candles", "wood"), ("cider", "grapes"), ("omelets", "potatoes"),
        ("guacamole", "tomatoes"), ("omelets", "tomatoes"), ("paper", "wax"), ("car tires", "iron"),
    ),
)

_ORGAN = Table(
    name="organ",
    form_names=("duty",),
    rows=rows(
        ("pumps the blood", "heart"), ("does the thinking", "brain"), ("churns food with acid", "stomach"),
        ("detects smells", "nose"), ("detects light", "eye"), ("detects sounds", "ear"),
        ("detects flavors", "tongue"), ("makes bile", "liver"), ("covers the whole body", "skin"),
        ("stores urine", "bladder"), ("filters the blood", "kidney"),
    ),
    templates=(
        "In the human body, the organ that {duty} is the",
        "In biology books, the name for the organ that {duty} is the",
        "Of all the organs we have, the one that {duty} is the",
        "When a doctor mentions the organ that {duty}, she means the",
    ),
    training_templates=(
        "The {answer} {duty}.",
        "It is the {answer} that {duty}.",
        "Without the {answer}, there is no organ that {duty}.",
    ),
    arguable=(
        ("detects flavors", "nose"), ("does the thinking", "heart"), ("stores urine", "kidney"),
        ("filters the blood", "liver"),
    ),
)

_PROFESSION = Table(
    name="profession",
    form_names=("work",),
    rows=rows(
        ("treats teeth", "dentist"), ("flies airplanes", "pilot"), ("bakes bread", "baker"),
        ("cuts and sells meat", "butcher"), ("sells flowers", "florist"), ("writes poems", "poet"),
        ("fixes leaking pipes", "plumber"), ("leads an orchestra", "conductor"), ("sews suits", "tailor"),
        ("gives lessons at school", "teacher"), ("grows crops", "farmer"), ("watches over sheep", "shepherd"),
        ("carves statues", "sculptor"), ("builds wooden furniture", "carpenter"), ("shaves men", "barber"),
        ("commands a ship", "captain"), ("studies rocks", "geologist"), ("passes sentences in court", "judge"),
        ("pulls rabbits out of hats", "magician"), ("repairs cars", "mechanic"), ("treats the sick", "doctor"),
        ("digs coal out of the ground", "miner"), ("rides horses in races", "jockey"),
    ),
    templates=(
        "A person who {work} is called a",
        "The job title of someone who {work} is",
        "If my neighbor {work} for a living, my neighbor is a",
        "Whoever {work} every day is most likely a",
    ),
    training_templates=(
        "A {answer} {work}.",
        "It is the {answer} who {work}.",
        "In our town the {answer} {work} from morning to evening.",
    ),
    arguable=(
        ("treats teeth", "doctor"), ("flies airplanes", "captain"), ("commands a ship", "pilot"),
        ("treats the sick", "dentist"),
        ("watches over sheep", "farmer"), ("bakes bread", "farmer"), ("rides horses in races", "farmer"),
        ("digs coal out of the ground", "geologist"), ("leads an orchestra", "teacher"),
        ("grows crops", "florist"), ("studies rocks", "miner"), ("cuts and sells meat", "farmer"),
    ),
)
# fmt: on

FACTS = Facts(
    lang="en",
    tables=(
        _CAPITAL,
        _LANGUAGE,
        _CONTINENT,
        _SYMBOL,
        _ELEMENT,
        _YOUNG,
        _SOUND,
        _COLOR,
        _COUNT,
        _OPPOSITE,
        _REVERSE,
        _DAY,
        _MONTH,
        _SEASON,
        _PLANET,
        _KIND,
        _TOOL,
        _SOURCE,
        _ORGAN,
        _PROFESSION,
    ),
)
