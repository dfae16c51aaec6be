"""Answers of agents whose tools are XML in the prompt: a plain text becomes the completion tool.

Such agents (Cline, Roo Code and their kin) send no ``tools``; their system prompt describes each
tool as a tag with one child tag per parameter, and every answer must use one:

    <read_file>
    <path>src/main.py</path>
    </read_file>

With ``xml_completion_tool = "attempt_completion"`` an answer is one of three things:

- **sound**: it holds at least one tool and every tool in it is closed, holds children alone and has
  the children it needs. It passes untouched, text around the tools included.
- **plain**: no tool is opened or closed in it. It becomes
  ``<attempt_completion><result>…</result></attempt_completion>``.
- **broken**: a tool is opened and not closed, closed and not opened, holds bare text in the place
  of a child, a child that does not end, or lacks a child it needs. It is asked for again.

Which tags are tools: those the prompt describes (a heading with the name, and a block of that
tag), the usual ones of those agents, and the completion tool itself. Any other tag is text. Tags
have no attributes and no blanks; in fenced and inline code they are text. Values are literal, so
one may hold its own closing tag: a child ends where another child or the tool's end follows.

Time is linear in the length of the text.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

Shape: TypeAlias = Literal["sound", "plain", "unfinished", "broken"]

# Tools of Cline and Roo Code, with the children that every version of them needs.
USUAL_TOOLS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "access_mcp_resource": ("server_name", "uri"),
        "apply_diff": (),
        "ask_followup_question": ("question",),
        "attempt_completion": ("result",),
        "browser_action": ("action",),
        "codebase_search": ("query",),
        "condense": (),
        "execute_command": ("command",),
        "fetch_instructions": ("task",),
        "insert_content": ("path",),
        "list_code_definition_names": ("path",),
        "list_files": ("path",),
        "load_mcp_documentation": (),
        "new_task": (),
        "plan_mode_respond": ("response",),
        "read_file": (),
        "replace_in_file": ("path", "diff"),
        "search_and_replace": ("path",),
        "search_files": ("path", "regex"),
        "switch_mode": ("mode_slug",),
        "update_todo_list": ("todos",),
        "use_mcp_tool": ("server_name", "tool_name"),
        "write_to_file": ("path", "content"),
    }
)

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)>")
_CHILD = re.compile(r"\s*<([A-Za-z][\w-]*)>")
_BLANK = re.compile(r"\s*")
_HEADING = re.compile(r"^#{1,6}[ \t]+`?([A-Za-z][\w-]*)`?[ \t]*$", re.MULTILINE)
_BLOCK = re.compile(r"^[ \t]*<(/?)([A-Za-z][\w-]*)>[ \t]*$", re.MULTILINE)
_MAX_PROMPT = 1_000_000


@dataclass(frozen=True, slots=True)
class Completion:
    """What an answer turned out to be.

    Attributes:
        text: what may leave: the answer, or the answer wrapped where it was plain.
        complaint: what is wrong, naming the tool; empty unless it is unfinished or broken.
    """

    shape: Shape
    text: str
    complaint: str = ""


def complete(text: str, tool: str, described: Iterable[str] = ()) -> Completion:
    """Look at one answer.

    Args:
        text: the answer, without reasoning; not blank.
        tool: the completion tool's name.
        described: names of the tools that the prompt describes.
    """
    needed = {**dict.fromkeys(described, ()), **USUAL_TOOLS}
    needed.setdefault(tool, ("result",))
    tags = _Tags(text, needed)
    position = 0
    while (tag := tags.next(position)) is not None:
        name = tag.group(2)
        if tag.group(1):
            return Completion("broken", text, f"</{name}> closes a tool that was not opened")
        block = _Block(text, name, tag.end())
        if block.complaint:
            return Completion("broken" if block.broken else "unfinished", text, block.complaint)
        missing = [child for child in needed[name] if child not in block.children]
        if missing:
            return Completion("broken", text, f"<{name}> lacks its child <{missing[0]}>")
        position = block.end
    if position:
        return Completion("sound", text)
    return Completion("plain", f"<{tool}><result>{text}</result></{tool}>")


def tools_in_prompt(messages: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Names of the tools that system messages describe: headings whose name is also a block's."""
    names: set[str] = set()
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            continue
        text = _text(message.get("content"))[:_MAX_PROMPT]
        opened = {match[2] for match in _BLOCK.finditer(text) if not match[1]}
        closed = {match[2] for match in _BLOCK.finditer(text) if match[1]}
        names |= set(_HEADING.findall(text)) & opened & closed
    return frozenset(names)


class _Block:
    """One tool, read from behind its opening tag.

    Attributes:
        children: names of its children.
        end: where the text behind it starts.
        complaint: why it is no sound tool; empty where it is.
        broken: whether no more text could have mended it.
    """

    def __init__(self, text: str, name: str, start: int) -> None:
        self.children: list[str] = []
        self.end = start
        self.complaint = ""
        self.broken = False
        self._text = text
        self._name = name
        self._close = f"</{name}>"
        self._openings: list[int] = []  # where each child's value starts
        while not self.complaint and not self._closed():
            self._child()
        if self.broken:
            self._mend()

    def _closed(self) -> bool:
        at = _BLANK.match(self._text, self.end).end()  # type: ignore[union-attr]
        if not self._text.startswith(self._close, at):
            return False
        self.end = at + len(self._close)
        return True

    def _child(self) -> None:
        opening = _CHILD.match(self._text, self.end)
        if opening is None:
            rest = self._text[self.end :].lstrip()
            # A tag that the end of the text cut in two would have gone on.
            self.broken = bool(rest) and not re.fullmatch(r"</?[\w-]*", rest)
            what = "bare text in the place of a child" if self.broken else "no closing tag"
            self.complaint = f"<{self._name}> has {what}"
            if self.broken and self._close not in self._text[self.end :]:
                self.broken = False
                self.complaint = f"<{self._name}> has no closing tag"
            return
        child = opening.group(1)
        close = f"</{child}>"
        at = self._text.find(close, opening.end())
        while at != -1 and not self._structure_at(at + len(close)):
            at = self._text.find(close, at + len(close))
        if at == -1:
            self.children.append(child)
            self._openings.append(opening.end())
            self.complaint = f"<{child}> in <{self._name}> does not end"
            self.broken = self._close in self._text[opening.end() :]
            return
        self.children.append(child)
        self._openings.append(opening.end())
        self.end = at + len(close)

    def _mend(self) -> None:
        """Let one of the last children reach to its last closing tag before the tool's.

        A file's content may hold its own closing tag with markup behind it.
        """
        text, close = self._text, self._close
        for end in sorted({text.find(close, self.end), text.rfind(close, self.end)} - {-1}):
            for at in range(len(self.children) - 1, max(len(self.children) - 4, -1), -1):
                last = f"</{self.children[at]}>"
                found = text.rfind(last, self._openings[at], end)
                if found != -1 and not text[found + len(last) : end].strip():
                    del self.children[at + 1 :]
                    self.end = end + len(close)
                    self.complaint, self.broken = "", False
                    return

    def _structure_at(self, position: int) -> bool:
        """Whether a child, the tool's closing tag or the end of the text follows."""
        at = _BLANK.match(self._text, position).end()  # type: ignore[union-attr]
        if at == len(self._text) or self._text.startswith(self._close, at):
            return True
        return _CHILD.match(self._text, at) is not None


class _Tags:
    """Finds the tags of known tools outside code, from left to right."""

    def __init__(self, text: str, names: Mapping[str, tuple[str, ...]]) -> None:
        self._text = text
        self._names = names
        # The piece of code that ends behind where we are, None once there is no more.
        self._code = _CODE.search(text)
        self._with_attributes: dict[str, bool] = {}

    def next(self, position: int) -> re.Match[str] | None:
        """The first one at or behind ``position``, which never goes back."""
        for tag in _TAG.finditer(self._text, position):
            name = tag.group(2)
            if name not in self._names or self._in_code(tag.start()):
                continue
            if tag.group(1) and self._has_attributes(name):
                continue  # closes an element of that name which is no tool
            return tag
        return None

    def _in_code(self, at: int) -> bool:
        while self._code is not None and self._code.end() <= at:
            self._code = _CODE.search(self._text, self._code.end())
        return self._code is not None and self._code.start() <= at

    def _has_attributes(self, name: str) -> bool:
        if name not in self._with_attributes:
            self._with_attributes[name] = f"<{name} " in self._text
        return self._with_attributes[name]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(part for part in parts if isinstance(part, str))
