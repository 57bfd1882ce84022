"""What the settings of all probe kinds have in common: how often, how long, where it fits, and what those with TLS add."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from reachline.doors.units import Duration, refuse
from reachline.model import Endpoint

__all__ = [
    "Burst",
    "Bytes",
    "Every",
    "Handshake",
    "Headers",
    "ProbeSettings",
    "Secured",
    "Settings",
    "Timeout",
    "Word",
    "as_text",
    "every_or_off",
    "joined",
]


class Settings(BaseModel):
    """What every block of a document has in common: frozen, no unknown keys, nothing converted by guessing."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=False)

    def __deepcopy__(self, memo: dict[int, object] | None = None) -> Self:
        """Itself: it is frozen. Else pydantic copies a default that holds a dict, such as all probes', each time it stands in."""
        del memo
        return self


Every = Annotated[Duration, Field(ge=0.1, le=86_400)]
Timeout = Annotated[Duration, Field(ge=0.01, le=60)]
Burst = Annotated[int, Field(ge=1, le=100)]
Word = Annotated[str, Field(pattern=r"^[!-~]*$", max_length=255)]
"""ASCII without spaces, or empty."""
Bytes = Annotated[str, Field(max_length=17_000)]
r"""Up to 4096 bytes as text with `\r` `\n` `\t` `\0` `\\` `\xHH`, or `hex:…`; the talk reads it."""


def _one_line(value: SecretStr) -> SecretStr:
    """A second line would be a header of its own."""
    if {"\r", "\n", "\0"} & set(value.get_secret_value()):
        raise refuse("must be one line")
    return value


Headers = dict[
    Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")], Annotated[SecretStr, AfterValidator(_one_line)]
]
"""Names and their values, which are secrets."""

_TLS: Final = frozenset({"sni", "ca", "verify", "alpn", "expect_alpn", "min_tls"})


def as_text(value: object) -> object:
    """A number as it is written: `min_tls: 1.3`, `version: 2`."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def every_or_off(value: object) -> object:
    """`tcp: 5s` for `tcp: {every: 5s}`, `tcp: off` for `tcp: {enabled: false}`."""
    if value is None:
        raise refuse("is empty", "write 5s, a block, or off")
    if value == "off" or value is False:
        return {"enabled": False}
    return value if isinstance(value, dict) else {"every": value}


def joined(value: object) -> object:
    """A list of texts as one, comma-separated."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


class ProbeSettings(Settings):
    """What every kind's block has in common."""

    fits: ClassVar[frozenset[str]]
    """Schemes of lines that can be asked…"""
    lacks: ClassVar[str] = "cannot be asked that"
    """…and what is said of the others."""
    calm: ClassVar[bool] = False
    """Keeps its pace while a line is suspect: advisory, and what costs the other side most."""

    enabled: bool = Field(True, description="`off` in place of the block switches this kind off for the cluster.")
    every: Every
    burst: Burst
    timeout: Timeout = Field(
        1.0,
        description="From here on an answer counts as late; 1 s is the first SYN retransmission, so a lost SYN is late too.",
    )
    tail: Timeout = Field(
        3.0,
        description="Waited beyond the timeout: the second SYN retransmission falls into it, so the tail is seen as late, "
        "not as lost.",
    )

    def misfit(self, endpoint: Endpoint) -> str:
        """Why this kind cannot be asked of a line, in words; empty where it can."""
        return "" if endpoint.scheme in self.fits else f"{endpoint} {self.lacks}"

    def idle(self, endpoint: Endpoint) -> frozenset[str]:
        """Options that say nothing on this line: those of TLS where none is spoken."""
        del endpoint
        return frozenset()


class Handshake(ProbeSettings):
    """What kinds add that speak TLS."""

    sni: Word = Field("", description="Name sent in the handshake. Empty: the host of the URL.")
    ca: str = Field("", max_length=1_000, description="PEM file of trusted roots, at the agent. Empty: the system's.")
    verify: bool = Field(
        True, description="Whether a certificate that does not verify fails the probe; its expiry is read either way."
    )
    min_tls: Annotated[Literal["1.2", "1.3"] | None, BeforeValidator(as_text, json_schema_input_type=float | str)] = (
        Field(None, description="Lowest version of TLS that is spoken: 1.2 or 1.3. Unset: what OpenSSL takes.")
    )


class Secured(Handshake):
    """What kinds add that can do without TLS."""

    secure: ClassVar[frozenset[str]]
    """Schemes of lines on which TLS is spoken unless `tls` says otherwise."""

    tls: bool | None = Field(None, description="Whether to speak TLS. Unset: by scheme.")

    def speaks_tls(self, endpoint: Endpoint) -> bool:
        """Whether this line is spoken to by TLS."""
        return endpoint.scheme in self.secure if self.tls is None else self.tls

    def idle(self, endpoint: Endpoint) -> frozenset[str]:
        return frozenset() if self.speaks_tls(endpoint) else _TLS
