"""Settings of how what is observed is summed up and judged: windows and limits. Every default carries its reason."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from reachline.doors.probe import Settings
from reachline.doors.units import Duration, Share, refuse

__all__ = ["RATES", "ROUND_TRIPS", "Limits", "Rate", "RateLimit", "RttLimit", "Window"]

RATES: Final = ("loss", "timeout", "errors")
ROUND_TRIPS: Final = ("p95", "ewma", "jitter")


class Window(Settings):
    """What an agent keeps of a line to tell how it is now."""

    samples: int = Field(200, ge=20, le=10_000, description="The source document's window: P95 rests on its worst ten.")
    max_age: Annotated[Duration, Field(ge=1, le=86_400)] = Field(
        120.0, description="Older samples say nothing of now; without it 200 samples at 5 s would remember 16 minutes."
    )
    alpha: float = Field(
        0.3, gt=0, le=1, description="Weight of the newest sample in the EWMA: the source document's default."
    )


def _never(value: object) -> object:
    """`never` in place of a limit: the metric does not reach that zone."""
    return None if value == "never" else value


def _ignore(value: object) -> object:
    """`loss: ignore`: the metric has no say."""
    if value == "ignore":
        return {"degraded": "never", "failed": "never"}
    if not isinstance(value, dict):
        raise refuse("must be a block or ignore", "write {degraded: …, exit: …, failed: …, failed_exit: …, samples: …}")
    return value


Rate = Annotated[Annotated[Share, Field(ge=0.001, le=1)] | None, BeforeValidator(_never)]
"""A share, or `never`."""
_Rtt = Annotated[Annotated[Duration, Field(ge=0.000_01, le=60)] | None, BeforeValidator(_never)]
_ENTER: Final = "From here on degraded. `never`: this metric does not degrade a line."
_EXIT: Final = "Degraded ends below this. Unset beside a changed `degraded`: moves in proportion."
_FAILED: Final = "From here on failed. `never`: this metric does not fail a line."
_FAILED_EXIT: Final = "Failed ends below this. Unset beside a changed `failed`: moves in proportion."
_SAMPLES: Final = "Below this many samples the metric has no opinion."


class RateLimit(Settings):
    """Limits of a share of samples. The point value and the 95 % lower bound must both agree before it counts."""

    degraded: Rate = Field(None, description=_ENTER)
    exit: Rate = Field(None, description=_EXIT)
    failed: Rate = Field(None, description=_FAILED)
    failed_exit: Rate = Field(None, description=_FAILED_EXIT)
    samples: int = Field(25, ge=1, le=10_000, description=_SAMPLES)


class RttLimit(Settings):
    """Limits of a round-trip figure."""

    degraded: _Rtt = Field(None, description=_ENTER)
    exit: _Rtt = Field(None, description=_EXIT)
    failed: _Rtt = Field(None, description=_FAILED)
    failed_exit: _Rtt = Field(None, description=_FAILED_EXIT)
    samples: int = Field(20, ge=1, le=10_000, description=_SAMPLES)


def _rate(degraded: float, leave: float, failed: float, failed_leave: float, samples: int) -> RateLimit:
    return RateLimit(degraded=degraded, exit=leave, failed=failed, failed_exit=failed_leave, samples=samples)


def _rtt(degraded: float, leave: float, failed: float, failed_leave: float, samples: int) -> RttLimit:
    return RttLimit.model_construct(
        degraded=degraded, exit=leave, failed=failed, failed_exit=failed_leave, samples=samples
    )


_RateBlock = Annotated[RateLimit, BeforeValidator(_ignore, json_schema_input_type=RateLimit | Literal["ignore"])]
_RttBlock = Annotated[RttLimit, BeforeValidator(_ignore, json_schema_input_type=RttLimit | Literal["ignore"])]


class Limits(Settings):
    """Where each metric turns a line degraded or failed, and where it turns back. The worst metric decides."""

    loss: _RateBlock = Field(
        _rate(0.01, 0.005, 0.05, 0.03, 25),
        description="Lost packets of those sent; fits every figure in the source document.",
    )
    timeout: _RateBlock = Field(
        _rate(0.02, 0.01, 0.05, 0.03, 25), description="Late or never answered attempts; 6 % is the founding incident."
    )
    p95: _RttBlock = Field(
        _rtt(0.2, 0.16, 0.5, 0.4, 20), description="95th percentile, unanswered attempts counted as slowest."
    )
    ewma: _RttBlock = Field(_rtt(0.15, 0.12, 0.4, 0.32, 5), description="Smoothed round trip: the trend.")
    jitter: _RttBlock = Field(
        _rtt(0.15, 0.12, 0.4, 0.32, 20), description="P95 - P50: what the founding incident showed first."
    )
    errors: _RateBlock = Field(
        _rate(0.02, 0.01, 0.1, 0.05, 5),
        description="HTTP errors and resets; also 2 of the newest 5 degrade and 3 of 5 fail, so that a slow probe is heard.",
    )
