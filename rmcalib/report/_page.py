"""Self-contained HTML pages: templates that escape all text, with figures inside and no network access."""

from typing import Any

from rmcalib._util.display import interval, number, p_value, percent, points, signed
from rmcalib._util.terminal import clean

__all__ = ["render"]


def render(template: str, **content: Any) -> str:
    """Fill in one of the package's templates; text is escaped, and control characters are removed.

    >>> "&lt;script&gt;" in render("base.html", title="<script>", subtitle="")
    True
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def without_controls(value: Any) -> Any:
        return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=PackageLoader("rmcalib.report"),
        autoescape=True,
        finalize=without_controls,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "signed": signed,
        "interval": interval,
        "percent": percent,
        "points": points,
        "p_value": p_value,
        "small": _small,
    }
    return environment.get_template(template).render(**content)


def _small(value: float) -> str:
    """Return a probability; below 0.001 in scientific notation, because its size matters."""
    return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"
