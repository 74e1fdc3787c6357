"""What the pipeline asks of the part that owns the models. Structural: `server.models.manager` needs no import from here."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager
from typing import Protocol

from server.engine.client import EngineClient
from server.engine.messages import ModelState
from server.engine.messages import SlotState as SlotState  # for those who show it
from server.metrics import Metrics
from server.model_status import FetchProgress, ModelStatus


class LoadedModel(Protocol):
    """A model that can take requests, with what models.txt says of it."""

    @property
    def name(self) -> str:
        """The alias under which answers report it."""

    @property
    def engine(self) -> EngineClient:
        """The running model."""

    @property
    def template(self) -> str | None:
        """The built-in chat template that models.txt names (`template=`); None: the GGUF's own."""

    @property
    def codec(self) -> str | None:
        """The tool-call format that models.txt names (`codec=`); None: told by the chat template."""

    def in_use(self) -> AbstractContextManager[None]:
        """The model stays until this is left; entered right after it was handed out, it can't have gone."""


class ModelManager(Protocol):
    """All the models that this server knows. Nothing here blocks the event loop."""

    @property
    def metrics(self) -> Metrics:
        """What the server counts."""

    @property
    def default(self) -> str:
        """The name of the default model."""

    def names(self) -> tuple[str, ...]:
        """The aliases of all models, the default first."""

    def state(self, name: str | None = None) -> ModelState:
        """Where a model (None: the default) stands; "stopped" where it isn't loaded. Never waits for its process."""

    def loaded(self) -> tuple[LoadedModel, ...]:
        """The models that have a live process now."""

    async def engine(self, name: str | None) -> LoadedModel:
        """The model of that name, loaded; None, "" and "default" are the default model.

        Raises ModelNotFound, ModelLoading (with Retry-After) while it is being loaded or restarted, EngineStartFailed.
        """

    def load(self, name: str | None) -> None:
        """Begin to load a model where it isn't loaded; failures are logged. Raises ModelNotFound."""

    def touch(self, name: str | None, keep_alive_s: float) -> None:
        """From now on the model stays this long after its last use; negative: for ever; 0: it goes when nothing runs on it.

        Nothing where it isn't loaded. Raises ModelNotFound.
        """

    def unload(self, name: str | None) -> None:
        """End the model's process, now or when what runs on it is done. Raises ModelNotFound."""

    async def describe(self, name: str | None) -> ModelStatus:
        """What is known of a model, loaded or not; never waits for a model. Raises ModelNotFound."""

    async def describe_all(self) -> tuple[ModelStatus, ...]:
        """`describe` for every model, the default first."""

    def statuses(self) -> tuple[ModelStatus, ...]:
        """The models that are loaded or being loaded, without details; at once."""

    def pull(self, name: str | None) -> AsyncGenerator[FetchProgress, None]:
        """Fetch a model's files where they aren't here, telling how far it is. Raises ModelNotFound, EngineStartFailed."""

    async def remove(self, name: str | None) -> None:
        """Unload a model and delete its files. Raises ModelNotFound where there are none, BadRequest for a user's own file."""

    async def start(self) -> None:
        """Begin to load what has to be there at server start; returns without waiting for it."""

    async def stop(self) -> None:
        """End every model process."""
