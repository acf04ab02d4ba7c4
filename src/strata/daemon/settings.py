"""Everything that a controller can be told, and where that is read from: the configuration file, then options.

The file is YAML with a section per layer. Durations and watts are written as people write them (``30s``, ``2MW``). What
is wrong in it is said with file, line and column. A path in it is relative to the file's own directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.input.forms import in_words
from strata.core.input.yamltree import Document, told
from strata.core.settings_section import Section
from strata.core.units import Watts, seconds, watts
from strata.daemon.layers import LAYER_NAMES
from strata.fleet.settings import FleetSettings
from strata.hardware.settings import HardwareSettings
from strata.jobs.settings import JobSettings
from strata.platform.settings import PlatformSettings
from strata.power.settings import PowerSettings
from strata.provisioning.settings import ProvisioningSettings

if TYPE_CHECKING:
    LayerName = str
else:
    LayerName = Literal[LAYER_NAMES]

F = TypeVar("F", bound=FleetSettings)


class SimulatedSettings(Section, frozen=True, kw_only=True):
    """A fleet that isn't there, for trying things out."""

    nodes: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Simulated nodes to register if the store has none. Default: 0."""
    feeds: bool = False
    """Register the outlets and chassis that feed them too. Default: no; the simulator must have been told as well."""
    address: str = ""
    """Where the simulator answers (``http://127.0.0.1:PORT``), a process of its own: simulated nodes outlive the
    controller, as real ones do. Default: empty, real drivers."""

    def check(self) -> None:
        """That there is a simulator where there are to be simulated nodes."""
        if self.nodes and not self.address:
            raise BadRequest(
                "simulated nodes need a simulator",
                where="nodes",
                hint="give --simulator URL; python -m strata.virtual.bmc.server --nodes N prints it",
            )
        if self.address and not self.address.startswith(("http://", "https://")):
            raise BadRequest(f"{self.address[:80]!r} is not http://HOST:PORT", where="address")


class Settings(FleetSettings, frozen=True, kw_only=True):
    """Everything that ``strata serve`` can be told."""

    layers: tuple[LayerName, ...] = LAYER_NAMES
    """Which layers run, with those that they stand on. Default: all. With ``hardware`` alone Strata discovers, switches
    and watches machines, and knows nothing of operating systems and jobs: somebody else looks after those. With
    ``power`` it also measures and caps them."""
    models: tuple[Path, ...] = ()
    """Site model files (YAML), added to the built-in layers in this order. Default: none."""
    hardware: HardwareSettings = HardwareSettings()
    provisioning: ProvisioningSettings = ProvisioningSettings()
    power: PowerSettings = PowerSettings()
    platform: PlatformSettings = PlatformSettings()
    jobs: JobSettings = JobSettings()
    simulated: SimulatedSettings = SimulatedSettings()

    def check(self) -> None:
        """Raise ``BadRequest`` on the first setting that cannot work; its ``where`` is the setting: ``store.url``."""
        if not self.layers:
            raise BadRequest(f"name at least one of {', '.join(LAYER_NAMES)}", where="layers")
        if self.provisioning.networks is not None and not {"provisioning", "platform"} & set(self.layers):
            raise BadRequest(
                "nodes are booted by the provisioning layer, which does not run here", where="provisioning.networks"
            )
        super().check()
        for path in self.models:
            if not path.is_file():
                raise BadRequest(f"no such file: {path}", where="models")


class Option(msgspec.Struct, frozen=True):
    """A setting that was given on the command line: as it is called there, and the text or texts."""

    called: str
    value: str | Sequence[str]


def read_settings(file: Path | None, options: Mapping[str, Option]) -> Settings:
    """What ``file`` says (None: nothing), with ``options`` (by setting: ``store.url``) in place of what they set.

    All of it is checked: raises ``BadRequest`` with the file's line and column, or the option."""
    document = _open(file) if file is not None else Document("", "")
    settings = document.read(Settings, _reads(file.absolute().parent if file is not None else Path.cwd()))
    for setting, option in options.items():
        settings = _with(settings, setting, option)
    with _placed(document, options):
        settings.check()
    return settings


def get(settings: FleetSettings, setting: str) -> Any:
    """The value of ``store.url``, say."""
    found: Any = settings
    for name in setting.split("."):
        found = getattr(found, name)
    return found


def put(settings: F, setting: str, value: Any) -> F:
    """The same settings with another value of ``store.url``, say."""
    section, _, name = setting.rpartition(".")
    if not section:
        return msgspec.structs.replace(settings, **{name: value})
    return msgspec.structs.replace(
        settings, **{section: msgspec.structs.replace(getattr(settings, section), **{name: value})}
    )


def changes(before: Settings, after: Settings) -> Iterator[tuple[str, bool]]:
    """Settings in which the two differ; whether a running service can take that over."""
    sections = dict(before.sections())
    for name in before.__struct_fields__:
        if name not in sections and getattr(before, name) != getattr(after, name):
            yield name, False
    for section, was in sections.items():
        for name in was.__struct_fields__:
            if getattr(was, name) != get(after, f"{section}.{name}"):
                yield f"{section}.{name}", name in was.live


def _open(file: Path) -> Document:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadRequest(f"cannot be read: {reason}", where=str(file)) from None
    return Document(text, str(file))


def _reads(directory: Path) -> Any:
    """Makes from text what msgspec does not know; paths are relative to ``directory``."""

    def read(kind: type[Any], value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError("must be one value")
        if issubclass(kind, Path):
            return directory / Path(value).expanduser()
        return watts(value) if kind is Watts else seconds(value)

    return read


def _with(settings: Settings, setting: str, option: Option) -> Settings:
    section, _, name = setting.rpartition(".")
    value = option.value
    with contextlib.suppress(AttributeError):  # of a setting that there is not: msgspec says it better
        if isinstance(value, str) and isinstance(get(settings, setting), tuple):
            value = value.split(",")
    data: Any = {name: value}
    try:
        found = msgspec.convert(
            {section: data} if section else data, Settings, strict=False, dec_hook=_reads(Path.cwd())
        )
    except msgspec.ValidationError as error:
        said, path = told(error)
        raise BadRequest(in_words(said, Settings, path), where=option.called) from None
    return put(settings, setting, get(found, setting))


@contextlib.contextmanager
def _placed(document: Document, options: Mapping[str, Option]) -> Iterator[None]:
    """Says of a setting that cannot work where it was set."""
    try:
        yield
    except BadRequest as error:
        setting = error.where
        if setting in options:
            where = f"{options[setting].called} ({setting})"
        elif document.holds(setting):
            where = f"{document.place(setting)}: {setting}"
        else:
            raise
        raise BadRequest(error.detail, where=where, hint=error.hint) from None
