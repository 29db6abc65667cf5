"""Self-contained HTML pages: templates that escape everything, figures inside, no network."""

from typing import Any

__all__ = ["render"]


def render(template: str, **content: Any) -> str:
    """Fill in one of the package's templates; text is escaped, whatever it holds.

    >>> "&lt;script&gt;" in render("base.html", title="<script>", subtitle="")
    True
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rmcalib.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = _number
    environment.filters["p_value"] = _p_value
    environment.filters["small"] = _small
    return environment.get_template(template).render(**content)


def _number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text if float(text) else text.lstrip("-")


def _p_value(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def _small(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"
