"""Faults that lie between keys: names used twice, targets that point nowhere, an open door.

The checks read the TOML tree and not the structured settings, and skip whatever has the wrong
shape: so a mistyped number in one provider does not hide a dangling target in a route, and does
not invent one either.
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from edge.core.near_match import did_you_mean, shown
from edge.settings.complaints import Complaint
from edge.settings.kinds import Address

Tree = Mapping[str, Any]
Tables = list[tuple[str, Tree]]
"""Tables with their places."""


def cross_complaints(tree: Tree) -> list[Complaint]:
    """All of them."""
    providers = _tables(tree, "providers")
    routes = _tables(tree, "routes")
    return [
        *_twice(_tables(tree, "keys"), "name"),
        *_twice(providers, "name"),
        *_twice(routes, "model"),
        *_nothing_to_serve(tree),
        *_ill_suited(providers),
        *_dangling(routes, providers),
        *_listening(tree),
        *_unknown_models(_tables(tree, "keys"), routes),
        *_without_extra(tree),
    ]


def _tables(tree: Tree, key: str, place: str = "") -> Tables:
    found = tree.get(key)
    if not isinstance(found, list):
        return []
    return [
        (f"{place}{key}[{index}]", table)
        for index, table in enumerate(found)
        if isinstance(table, dict)
    ]


def _twice(tables: Tables, key: str) -> Iterator[Complaint]:
    first: dict[str, str] = {}
    for place, table in tables:
        value = table.get(key)
        if not isinstance(value, str):
            continue
        if value in first:
            yield Complaint(f"{place}.{key}", f"{shown(value)} is used by {first[value]} already")
        first.setdefault(value, place)


def _nothing_to_serve(tree: Tree) -> Iterator[Complaint]:
    for key, example in (
        ("providers", 'name = "gpu1", base_url = "http://127.0.0.1:8000/v1"'),
        ("routes", 'model = "*", targets = [{ provider = "gpu1" }]'),
    ):
        if tree.get(key, []) == []:
            yield Complaint(key, f"at least one [[{key}]] is needed, such as {example}")


def _ill_suited(providers: Tables) -> Iterator[Complaint]:
    """Keys that the provider's kind lacks or cannot use."""
    for place, provider in providers:
        kind = provider.get("kind", "openai")
        if kind == "openai" and provider.get("base_url", "") == "":
            yield Complaint(f"{place}.base_url", 'is missing: kind "openai" needs it')
        if kind == "simulated":
            for key in ("base_url", "api_key", "ca_file"):
                if provider.get(key):
                    yield Complaint(f"{place}.{key}", 'kind "simulated" connects to nothing')


def _dangling(routes: Tables, providers: Tables) -> Iterator[Complaint]:
    names = [name for _, table in providers if isinstance(name := table.get("name"), str)]
    for place, route in routes:
        if route.get("targets") == []:
            yield Complaint(f"{place}.targets", "at least one target is needed")
        for target_place, target in _tables(route, "targets", f"{place}."):
            name = target.get("provider")
            if isinstance(name, str) and name not in names:
                hint = did_you_mean(name, names)
                yield Complaint(
                    f"{target_place}.provider", f"no provider is called {shown(name)}{hint}"
                )


def _listening(tree: Tree) -> Iterator[Complaint]:
    server = tree.get("server", {})
    if not isinstance(server, dict):
        return
    bind = server.get("bind")
    if bind == []:
        yield Complaint("server.bind", "at least one address is needed")
    is_open = not tree.get("keys") and server.get("allow_open") is not True
    taken: set[Address] = set()
    for index, text in enumerate(bind if isinstance(bind, list) else []):
        place = f"server.bind[{index}]"
        address = _address(text)
        if address is None:
            continue
        if address in taken and address.port:
            yield Complaint(place, f"{address} is listed twice")
        if is_open and not address.is_loopback:
            yield Complaint(
                place,
                f"{address} can be reached by other machines and there are no [[keys]]; "
                "add keys, or set server.allow_open = true",
            )
        taken.add(address)


def _address(text: Any) -> Address | None:
    try:
        return Address.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _unknown_models(keys: Tables, routes: Tables) -> Iterator[Complaint]:
    """A key's ``models`` that no route serves: a typing mistake that would lock the key out."""
    served = [model for _, route in routes if isinstance(model := route.get("model"), str)]
    if "*" in served:
        return
    for place, key in keys:
        models = key.get("models")
        for index, model in enumerate(models if isinstance(models, list) else []):
            if isinstance(model, str) and "*" not in model and model not in served:
                hint = did_you_mean(model, served)
                yield Complaint(f"{place}.models[{index}]", f"no route serves {shown(model)}{hint}")


def _without_extra(tree: Tree) -> Iterator[Complaint]:
    telemetry = tree.get("telemetry")
    wanted = isinstance(telemetry, dict) and telemetry.get("otel") is True
    if wanted and not _is_installed("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"):
        yield Complaint("telemetry.otel", "needs an extra: pip install 'edge[otel]'")


def _is_installed(*modules: str) -> bool:
    try:
        return all(find_spec(module) is not None for module in modules)
    except ModuleNotFoundError:  # a package above it is missing
        return False
