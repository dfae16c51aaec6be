"""The ``messages`` of a chat request: what is checked, and the legacy forms said in today's words.

Bodies hold hundreds of messages, so they are not structured: one pass looks at what decides
whether a conversation can be understood at all (roles, kinds of content, the frame of tool calls).
Whether calls and results fit together, and whether arguments are sound, is not judged here.
"""

from typing import Any

from edge.wire.strict_structure import Complaint, Complaints, mismatch, shown

ENOUGH = 100
"""So many complaints end the looking: a client mends none of a million."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


class _Found(list[Complaint]):
    """The complaints found so far.

    Raises:
        Complaints: out of ``append``, when they are enough.
    """

    def append(self, complaint: Complaint, /) -> None:
        super().append(complaint)
        if len(self) == ENOUGH:
            raise Complaints(self)


def checked_messages(value: object) -> list[dict[str, Any]]:
    """``value`` itself, if it is a list of messages.

    Raises:
        Complaint, Complaints: with paths below ``messages`` (``[2].tool_calls[0].id``).
    """
    if not isinstance(value, list):
        raise mismatch("an array", value)
    if not value:
        raise Complaint("must hold at least one message")
    complaints = _Found()
    for index, message in enumerate(value):
        _check_message(message, f"[{index}]", complaints)
    if complaints:
        raise Complaints(complaints)
    return value


def in_current_words(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` with ``function_call`` as tool calls and role ``function`` as tool results.

    The list itself where there is nothing to say anew; its messages are never changed. Ids are made
    from the call's place in the conversation, so a repeated conversation gets the same ones.
    """
    if not any(map(_is_legacy, messages)):
        return messages
    ids: dict[str, str] = {}
    return [_in_current_words(index, message, ids) for index, message in enumerate(messages)]


def _check_message(message: object, path: str, complaints: list[Complaint]) -> None:
    if not isinstance(message, dict):
        complaints.append(mismatch("an object", message, path))
        return
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        wrong = "is required" if role is None else f"{shown(role)} is no role"
        complaints.append(Complaint(f"{wrong}; one of {', '.join(sorted(ROLES))}", f"{path}.role"))
        return
    content = message.get("content")
    if content is not None and not isinstance(content, str):
        _check_parts(content, f"{path}.content", complaints)
    if role == "assistant":
        _check_calls(message, path, complaints)
    elif role == "tool":
        _check_text(message, "tool_call_id", path, complaints)
    elif role == "function":
        _check_text(message, "name", path, complaints)


def _check_parts(content: object, path: str, complaints: list[Complaint]) -> None:
    if not isinstance(content, list):
        complaints.append(mismatch("a string, an array of parts or null", content, path))
        return
    for index, part in enumerate(content):
        if not isinstance(part, dict):
            complaints.append(mismatch("an object", part, f"{path}[{index}]"))
        elif not isinstance(part.get("type"), str):
            _check_text(part, "type", f"{path}[{index}]", complaints)


def _check_calls(message: dict[str, Any], path: str, complaints: list[Complaint]) -> None:
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        complaints.append(mismatch("an array", calls, f"{path}.tool_calls"))
        calls = None
    for index, call in enumerate(calls or ()):
        at = f"{path}.tool_calls[{index}]"
        if not isinstance(call, dict):
            complaints.append(mismatch("an object", call, at))
            continue
        identity = call.get("id")
        if identity is not None and not isinstance(identity, str):
            complaints.append(mismatch("a string", identity, f"{at}.id"))
        if call.get("type") in (None, "function"):
            _check_function(call.get("function"), f"{at}.function", complaints)
    if message.get("function_call") is not None:
        _check_function(message["function_call"], f"{path}.function_call", complaints)


def _check_function(function: object, path: str, complaints: list[Complaint]) -> None:
    if function is None:
        complaints.append(Complaint("is required", path))
    elif not isinstance(function, dict):
        complaints.append(mismatch("an object", function, path))
    else:
        _check_text(function, "name", path, complaints)


def _check_text(holder: dict[str, Any], key: str, path: str, complaints: list[Complaint]) -> None:
    value = holder.get(key)
    if value is None:
        complaints.append(Complaint("is required", f"{path}.{key}"))
    elif not isinstance(value, str):
        complaints.append(mismatch("a string", value, f"{path}.{key}"))
    elif not value:
        complaints.append(Complaint("must not be empty", f"{path}.{key}"))


def _is_legacy(message: dict[str, Any]) -> bool:
    role = message["role"]
    return role == "function" or (role == "assistant" and "function_call" in message)


def _in_current_words(index: int, message: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    """One message; ``ids`` maps a function's name to the id of its latest call."""
    if message["role"] == "function":
        identity = ids.get(message["name"], f"call_{index}")
        return {**message, "role": "tool", "tool_call_id": identity}
    if not _is_legacy(message):
        return message
    said = {key: value for key, value in message.items() if key != "function_call"}
    function = message["function_call"]
    if function is not None and not said.get("tool_calls"):
        ids[function["name"]] = identity = f"call_{index}"
        said["tool_calls"] = [{"id": identity, "type": "function", "function": function}]
    return said
