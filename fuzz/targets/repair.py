"""JSON as models write it: any text has one reading without loss, or a fault that names its place.

Nothing raises. What the standard library reads is read as the same value, what was repaired reads
back without a repair, and a text that was cut is never read as a shorter one of another value. The
readers of calls in Python's and Gemma's writing, of XML tools and of demanded JSON are here too.
"""

import json
from collections.abc import Iterable
from typing import Any

from edge.core.contract import ResponseFormat
from edge.core.lenient_json import JsonFault
from edge.core.repair import parse_json, unstring
from edge.core.response_format import judge_text
from edge.core.schemas import compile_schema
from edge.core.toolcalls.literals import GemmaReader, PythonReader
from edge.core.xml_completion import complete
from fuzz.draw import Draw, as_text
from fuzz.targets.request import same
from tests.core.toolcalls.rendered_forms import RENDERED

MAX_BYTES = 1500
WORDS = (
    b'{"', b'": ', b", ", b"'''", b'"""', b"True", b"None", b"NaN", b"-Infinity", b"\\u", b"\\x",
    b"\\ud83d\\ude00", b"}}", b"]", b"1e999", b"-0", b"99999999999999999999", b"<|\"|>", b"```",
    b"look(", b"call:look{", b"<read_file>", b"</read_file>", b"<path>", b"</path>",
    b"<attempt_completion>", b"</result>",
)  # fmt: skip

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "at": {"type": "array", "items": {"type": "integer"}},
        "of": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        "$": {"$ref": "#"},
    },
}
COMPILED = compile_schema(SCHEMA, "schema")
EXAMPLES = (
    '{"a": [1, 2.5, -0, 1e5], "b": {"c": null, "d": true}, "e": "x\\n\\u00e9\\ud83d\\ude00"}',
    "{'a': True, 'b': None, 'c': \"it's\", 'd': '''x\ny'''}",
    '{"a": 1,}',
    '[{"a": 1} {"b": 2}]',
    '{"a": [{"b": 1}}]}',
    '\ufeff{"a": "line\nbreak"}',
    '{"a": {"b": 1}',
    '{"at": "[1, 2]", "of": "{\\"x\\": 1}", "$": "{\\"at\\": \\"[]\\"}"}',
    "look(at='it', n=[1, (2, 3)], d={'a': None}, f=+1.5)",
    'look{at:<|"|>it<|"|>,n:[1,2],d:{a:null}}',
    "<read_file>\n<path>a</path>\n</read_file>",
    "Done. <b>so</b> `<read_file>`",
    '```json\n{"at": [1]}\n```',
)


def check(data: bytes) -> None:
    """See the module's docstring."""
    draw = Draw(data)
    judge, options = draw.pick(JUDGES), draw.below(4)
    judge(as_text(draw.rest()), options)


def check_json(text: str, options: int) -> None:
    """Of arguments."""
    parsed = parse_json(text, repair=options != 2, outer_closer=options == 3)
    if parsed.fault:
        assert parsed.kind is not None
        assert (parsed.value, parsed.repairs) == (None, ())
        assert not is_plain(text), parsed
        return
    assert parsed.kind is None
    assert not parsed.repairs or options != 2
    again = parse_json(parsed.text)
    assert (again.repairs, again.fault) == ((), "")
    assert same(again.value, parsed.value)
    assert same(json.loads(parsed.text), parsed.value)
    parsed.text.encode()
    changed, repairs = unstring(parsed.value, SCHEMA)
    assert bool(repairs) == (changed is not parsed.value)
    assert unstring(changed, SCHEMA)[1] == ()


def is_plain(text: str) -> bool:
    """Whether this is JSON by the standard, without repeated keys, surrogates and the like."""
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        return same(json.loads(text.encode()), value)
    except (ValueError, RecursionError):
        return False


def _refuse(word: str) -> None:
    raise ValueError(word)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a repeated key")
    return dict(pairs)


def check_python(text: str, _: int) -> None:
    """Of calls as Python writes them."""
    reader = PythonReader(text)
    try:
        name, arguments = reader.call()
    except JsonFault as fault:
        assert 0 <= fault.position <= len(text)
        return
    assert name
    assert same(parse_json(json.dumps(arguments)).value, arguments)


def check_gemma(text: str, options: int) -> None:
    """Of arguments as Gemma writes them."""
    try:
        arguments = GemmaReader(text, ('<|"|>', "<escape>")[options & 1]).arguments()
    except JsonFault as fault:
        assert 0 <= fault.position <= len(text)
        return
    assert type(arguments) is dict


def check_xml(text: str, options: int) -> None:
    """Of agents whose tools are XML."""
    found = complete(text, "attempt_completion", ("look",) if options & 1 else ())
    assert (found.complaint == "") == (found.shape in ("sound", "plain"))
    if found.shape != "plain":
        assert found.text == text
        return
    wrapped = complete(found.text, "attempt_completion")
    assert (wrapped.shape, wrapped.text) == ("sound", found.text)


def check_demanded(text: str, options: int) -> None:
    """Of answers that were demanded to be JSON."""
    wanted = ResponseFormat("json_schema" if options & 1 else "json_object", SCHEMA)
    schema = COMPILED if options & 1 else None
    judged = judge_text(text, wanted, schema, repair=bool(options & 2), cut="")
    if judged.reasons:
        assert all(reason.message for reason in judged.reasons)
        return
    value = parse_json(judged.text, repair=False)
    assert not value.fault
    assert schema is not None or type(value.value) is dict
    assert schema is None or not schema.faults(value.value, len(judged.text))


JUDGES = (check_json, check_python, check_gemma, check_xml, check_demanded)


def seeds() -> Iterable[bytes]:
    """Texts that need each repair, and calls in every form."""
    texts = [*EXAMPLES, *(render([("look", {"at": "it", "n": 1})]) for render in RENDERED.values())]
    for text in texts:
        for kind in range(len(JUDGES)):
            yield bytes((kind, 0)) + text.encode()
    for text in EXAMPLES:
        yield b"\x00\x03" + text.encode()
