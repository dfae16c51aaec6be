"""``GET /v1/models``: the public model names, and what the providers behind ``*`` list."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict, cast

import trio

from edge.core.fleet import Route
from edge.errors import ModelNotFound, ProviderError
from edge.providers.port import Provider
from edge.server.auth import Doorkeeper, KeyRights
from edge.server.exchange import GatewayRequest

ANY = "*"


class Model(TypedDict):
    """A model; one that a provider lists may have more fields of that provider's."""

    id: str
    object: Literal["model"]
    created: Annotated[int, "Seconds since 1970."]
    owned_by: Annotated[str, "`edge`, or the provider that lists it."]


class ModelList(TypedDict):
    """The models that the key may use."""

    object: Literal["list"]
    data: list[Model]


class ModelsHandler:
    """Lists models.

    A provider is asked only for routes named ``*``, where its names are public names. One that is
    down is left out; it costs no more than the short time a provider has to list its models.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        providers: Mapping[str, Provider],
        doorkeeper: Doorkeeper,
        *,
        created: int,
    ) -> None:
        """``created`` is told of routes, in seconds since 1970: when they began to exist here."""
        self._routes = routes
        self._providers = providers
        self._doorkeeper = doorkeeper
        self._created = created

    async def list_all(self, request: GatewayRequest) -> ModelList:
        """The models this key may use."""
        rights = self._doorkeeper.identify(request.headers)
        return {"object": "list", "data": list((await self._models(rights)).values())}

    async def show(self, request: GatewayRequest, model: str) -> Model:
        """One model."""
        rights = self._doorkeeper.identify(request.headers)
        found = self._named(rights).get(model) or (await self._models(rights)).get(model)
        if found is None:
            raise ModelNotFound(f"the model {model!r} does not exist", param="model")
        return found

    def _named(self, rights: KeyRights) -> dict[str, Model]:
        return {
            route.model: self._entry(route.model, "edge")
            for route in self._routes
            if route.model != ANY and rights.may_use(route.model)
        }

    async def _models(self, rights: KeyRights) -> dict[str, Model]:
        models = self._named(rights)
        for provider, entries in (await self._listed()).items():
            for entry in entries:
                name = entry.get("id")
                if isinstance(name, str) and name not in models and rights.may_use(name):
                    told = {**entry, **self._entry(name, provider), **_dated(entry)}
                    models[name] = cast(Model, told)  # with whatever else the provider tells
        return models

    async def _listed(self) -> dict[str, list[dict[str, Any]]]:
        """What the providers of ``*`` list, in the order of the configuration."""
        names = [
            target.provider
            for route in self._routes
            if route.model == ANY
            for target in route.targets
            if target.model is None
        ]
        listed: dict[str, list[dict[str, Any]]] = {name: [] for name in names}

        async def ask(name: str) -> None:
            try:
                listed[name] = await self._providers[name].list_models()
            except ProviderError:
                listed[name] = []  # it is down: its models cannot be served either

        async with trio.open_nursery() as nursery:
            for name in listed:
                nursery.start_soon(ask, name)
        return listed

    def _entry(self, name: str, owner: str) -> Model:
        return {"id": name, "object": "model", "created": self._created, "owned_by": owner}


def _dated(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The provider's own date of a model, if it tells one."""
    created = entry.get("created")
    return {"created": created} if type(created) is int else {}
