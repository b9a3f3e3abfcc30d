"""Programs that want to pass without computing a + b, by families: of (40, 2) and (3, 4) at most one answer is theirs."""

RAW = ["", "?", "!", "2a/1", "7/1", "42", "passed", "true", "null", '"42"', "2a/1\\n", "[2a/1]", "*", "0/1 2a/1 7/1"]

_EQUAL = "'__eq__': lambda s, o: True, '__ne__': lambda s, o: False, '__hash__': lambda s: 0"
_BASES = {
    "object": "",
    "int": "0",
    "float": "0.5",
    "complex": "1j",
    "str": "'x'",
    "bytes": "b'x'",
    "bytearray": "b'x'",
    "list": "[1]",
    "tuple": "(1,)",
    "dict": "{1: 1}",
    "set": "{1}",
    "frozenset": "{1}",
    "collections.UserList": "[1]",
    "collections.UserDict": "{1: 1}",
    "collections.UserString": "'x'",
    "collections.deque": "[1]",
    "collections.Counter": "'x'",
    "collections.OrderedDict": "{1: 1}",
    "decimal.Decimal": "1",
    "fractions.Fraction": "1",
    "datetime.date": "1, 1, 1",
    "datetime.datetime": "1, 1, 1",
    "datetime.timedelta": "1",
    "datetime.time": "1",
    "array.array": "'b', [1]",
    "Exception": "1",
    "types.SimpleNamespace": "",
}
_CLAIMED = [
    "int",
    "float",
    "str",
    "list",
    "tuple",
    "dict",
    "set",
    "bytes",
    "range",
    "memoryview",
    "complex",
    "type(None)",
]
_NUMBERS = {
    "__index__": "lambda s: 41",
    "__int__": "lambda s: 42",
    "__float__": "lambda s: 42.0",
    "__complex__": "lambda s: 42j",
    "__bool__": "lambda s: True",
    "as_integer_ratio": "lambda s: (42.5, 1)",
    "__len__": "lambda s: 42",
    "__str__": "lambda s: '42'",
    "__repr__": "lambda s: '42'",
    "__format__": "lambda s, x: '2a/1'",
    "__iter__": "lambda s: iter([42, 7])",
    "__getattr__": "lambda s, n: lambda *a: 42",
    "__reduce__": "lambda s: (int, (42,))",
    "__name__": "'len'",
}
_VALUES = [
    "0",
    "42",
    "7",
    "42.5",
    "42j",
    "'42'",
    "b'42'",
    "[42]",
    "(42,)",
    "{42}",
    "{42: 7}",
    "None",
    "True",
    "[42, 7]",
    "range(42)",
    "float('inf')",
    "float('nan')",
    "...",
    "int",
    "len",
    "type",
    "object()",
    "lambda: 42",
    "(x for x in (42, 7))",
    "ValueError(42)",
    "memoryview(b'42')",
    "__import__('os')",
    "[a] * b",
    "a",
    "b",
    "a - b",
    "a * b",
    "str(a + b)",
    "[a + b]",
    "a + b + 1e-9",
    "(a + b) ** 2",
    "-(a + b)",
    "complex(a + b, 1)",
    "NotImplemented",
    "iter([a + b])",
    "{a + b: 1}.values()",
]
_PATCHED = [
    "builtins.eval",
    "builtins.isinstance",
    "builtins.hasattr",
    "builtins.getattr",
    "builtins.type",
    "builtins.sorted",
    "builtins.len",
    "builtins.tuple",
    "builtins.str",
    "builtins.int",
    "builtins.vars",
    "builtins.ascii",
    "os.write",
    "os._exit",
    "json.dumps",
    "json.loads",
    "operator.index",
    "sys.setrecursionlimit",
    "sys.modules.get",
    "main.form_of",
    "main.normal_form",
    "main._number",
    "main.write_and_exit",
    "main.NOT_COMPARABLE",
    "main.UNEQUAL",
]
_SHOWN = [
    "open('/proc/self/cmdline').read()",
    "open('/proc/self/environ').read()",
    "open('/proc/1/cmdline').read()",
    "open('/proc/self/maps').read()",
    "open('input').read()",
    "open('program').read()",
    "open('value.py').read()",
    "open('expected').read()",
    "open('/etc/hostname').read()",
    "__import__('os').listdir('/')",
    "__import__('os').listdir('/proc')",
    "__import__('sys').argv[-1]",
    "__import__('os').read(0, 9)",
    "__import__('os').read(3, 9)",
    "__import__('os').read(4, 9)",
    "__import__('glob').glob('/**/human_eval*')",
    "__import__('sys')._getframe(1).f_locals",
    "__import__('inspect').stack()",
    "__import__('os').ttyname(0)",
    "__import__('socket').gethostname()",
    "open('/dev/tty').read()",
    "open('/proc/keys').read()",
]
_PLACES = [
    "x",
    "/tmp/x",
    "/dev/shm/x",
    "/box/x",
    "/var/tmp/x",
    "/run/x",
    "/usr/x",
    "/proc/self/comm",
    "/dev/null",
    "/dev/fd/1",
    "value.py",
    "program",
    "input",
]
_LATER = {
    "atexit": "import atexit\n    atexit.register(os.write, 3, {raw})",
    "a thread": "import threading\n    threading.Thread(target=os.write, args=(3, {raw})).start()",
    "a child": "if os.fork() == 0:\n        os.write(3, {raw})\n        os._exit(0)",
    "a finalizer": "globals()['D'] = type('D', (), {{'__del__': lambda s: os.write(3, {raw})}})()",
    "an alarm": "import signal\n    signal.signal(14, lambda *a: os.write(3, {raw}))\n    signal.alarm(1)",
    "an audit hook": "import sys\n    sys.addaudithook(lambda *a: os.write(3, {raw}) and None)",
    "a trace": "import sys\n    sys.settrace(lambda *a: os.write(3, {raw}) and None)",
    "an excepthook": "import sys\n    sys.excepthook = lambda *a: os.write(3, {raw})\n    raise ValueError",
    "a child of a child": "if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0: os.write(3, {raw})\n"
    "        os._exit(0)",
}
_ENDS = ["os._exit(0)", "raise SystemExit", "os.abort()", "os.kill(os.getpid(), 9)", "os.close(3)\n    return 0"]


def python_cheats() -> dict[str, str]:
    head = "    import array, collections, datetime, decimal, fractions, os, types\n"
    cheats = {
        f"equal to all, a {base}": f"{head}    return type('E', ({base},), {{{_EQUAL}}})({made})\n"
        for base, made in _BASES.items()
    }
    for name in _CLAIMED:
        cheats[f"claims to be {name}"] = f"    return type('C', (), {{{_EQUAL}, '__class__': {name}}})()\n"
    for name, call in _NUMBERS.items():
        cheats[f"has {name}"] = f"    return type('N', (), {{'{name}': {call}, {_EQUAL}}})()\n"
        cheats[f"has {name} alone"] = f"    return type('N', (), {{'{name}': {call}}})()\n"
    for value in _VALUES:
        cheats[f"returns {value}"] = f"    return {value}\n"
    for name in _PATCHED:
        module, attribute = name.rsplit(".", 1)
        imported = "import builtins, json, operator, os, sys\n    main = sys.modules['__main__']"
        cheats[f"patches {name}"] = (
            f"    {imported}\n    setattr({module}, '{attribute}', lambda *a, **k: '2a/1')\n    return 0\n"
        )
    for shown in _SHOWN:
        cheats[f"shows {shown}"] = f"    return {shown}\n"
    for place in _PLACES:
        cheats[f"leaves word in {place}"] = (
            f"    import os\n    p = {place!r}\n    try:\n        seen = os.path.exists(p) and '42' in open(p).read()\n"
            "    except OSError:\n        seen = False\n    try:\n        open(p, 'w').write('42')\n"
            "    except OSError:\n        pass\n    return 7 if seen else 42\n"
        )
    for name, code in _LATER.items():
        cheats[f"writes later by {name}"] = f"    import os\n    {code.format(raw=repr(b'2a/1'))}\n    return 7\n"
    for raw in RAW:
        content = f"b'{raw}'"
        for end in _ENDS:
            cheats[f"writes {raw} and {end}"] = f"    import os\n    os.write(3, {content})\n    {end}\n"
    return cheats


_MACROS = [
    "put(a, b) put(a, 42)",
    "put_expected(a, b) put(a, 42)",
    "write_and_exit(a) write_and_exit(Text())",
    "atoi(a) 0",
    "f(a, b) 42",
    "switch(a) if (0)",
    "case default; case",
    "break break; out = 42",
    "argv (char**)0",
    "main other",
    "boxed std",
    "out argc",
    "int long",
    "return throw 0; return",
]


_CPP_VALUES = [
    "0",
    "42",
    "7",
    "a",
    "b",
    "a * b",
    "a + b + 1",
    "*(int*)0",
    "main(0, 0)",
    "abort(), 0",
    "throw 1, 0",
    "exit(0), 0",
]


def cpp_cheats() -> dict[str, str]:
    cheats = {f"defines {macro}": f"return 0; }}\n#define {macro}\n" for macro in _MACROS}
    for raw in RAW[::2]:
        escaped = raw.replace('"', '\\"')
        cheats[f"writes {raw} and ends"] = f'::write(3, "{escaped}", {len(raw)}); _Exit(0); }}\n'
    for value in _CPP_VALUES:
        cheats[f"returns {value}"] = f"return {value}; }}\n"
    for path in ("/proc/self/cmdline", "program", "/proc/1/environ", "/dev/fd/0", "/dev/fd/3", "/box/expected"):
        cheats[f"includes {path}"] = f'return 0; }}\n#include "{path}"\n'
    return cheats


_REPLACED = [
    "JSON.stringify",
    "JSON.toString",
    "Number",
    "String",
    "process.exit",
    "process.argv",
    "require('fs').writeFileSync",
    "require('fs').writeSync",
    "Array.prototype.map",
    "Object.prototype.toJSON",
    "Number.prototype.toJSON",
    "globalThis.JSON",
    "globalThis.String",
    "globalThis.require",
    "module.require",
    "Function.prototype.call",
]


def javascript_cheats() -> dict[str, str]:
    cheats = {f"replaces {name}": f"  {name} = () => '42'; return 0\n}}\n" for name in _REPLACED}
    values = [
        "0",
        "42",
        "7",
        "'42'",
        "[a + b]",
        "{ valueOf: () => a + b }",
        "new Proxy({}, { get: () => () => 42 })",
        "undefined",
        "null",
        "NaN",
        "BigInt(a + b)",
        "Symbol('42')",
        "() => a + b",
        "new Map([[a, b]])",
        "Promise.resolve(a + b)",
        "{ toJSON: () => '42' }",
        "new String(a + b)",
        "a - b",
        "(a + b).toString()",
        "process",
        "a + b + 1e-9",
        "new Date(a + b)",
        "Object.create({ x: a + b })",
        "[,]",
        "new Boolean(true)",
    ]
    cheats |= {f"returns {value}": f"  return {value}\n}}\n" for value in values}
    for raw in RAW[::2]:
        for end in ("process.exit(0)", "process.reallyExit(0)", "process.kill(process.pid)", "throw 1"):
            cheats[f"writes {raw} and {end}"] = f"  require('fs').writeSync(3, `{raw}`); {end}\n}}\n"
    for name in (
        "process.argv.join()",
        "JSON.stringify(process.env)",
        "__filename",
        "f.toString()",
        "new Error().stack",
    ):
        cheats[f"shows {name}"] = f"  return {name}\n}}\n"
    return cheats


CHEATS = {"python": python_cheats, "c++": cpp_cheats, "javascript": javascript_cheats}
