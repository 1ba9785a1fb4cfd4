"""Colours, shapes and the layout that all figures share.

Every status belongs to one outcome; an outcome has a shape and a colour of its own, so nothing is told by
colour alone. Colours: Okabe and Ito's set for categories, Viridis for quantities.
"""

from __future__ import annotations

from typing import Any

from kernelevolve.records import Status

SKY, ORANGE, GREEN, YELLOW = "#56B4E9", "#E69F00", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C"

OUTCOMES: dict[str, tuple[Status, ...]] = {
    "correct": (Status.CORRECT,),
    "suspect or dishonest": (Status.SUSPECT, Status.DISHONEST),
    "wrong answer": (Status.WRONG_VALUE, Status.WRONG_SHAPE, Status.WRONG_DTYPE, Status.WRONG_STRUCTURE,
                     Status.MUTATED_INPUT),
    "did not build": (Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT),
    "failed to run": (Status.RUNTIME_ERROR, Status.LAUNCH_ERROR, Status.DEVICE_FAULT, Status.CRASHED),
    "over a limit": (Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.DISK_LIMIT, Status.RESOURCE_LIMIT),
    "no code": (Status.NO_CODE, Status.TRUNCATED, Status.REFUSED),
    "duplicate": (Status.DUPLICATE,),
    "not judged": (Status.LOST, Status.HARNESS_ERROR),
}
"""Outcome -> its statuses, in the order of legends."""

SYMBOLS = {
    "correct": "circle", "suspect or dishonest": "star-triangle-up", "wrong answer": "x",
    "did not build": "square-open", "failed to run": "diamond-open", "over a limit": "hourglass-open",
    "no code": "cross-thin-open", "duplicate": "circle-open", "not judged": "asterisk-open",
}

COLOURS = {
    "correct": BLUE, "suspect or dishonest": PURPLE, "wrong answer": VERMILION, "did not build": ORANGE,
    "failed to run": SKY, "over a limit": PURPLE, "no code": GREY, "duplicate": GREY, "not judged": GREY,
}

_OUTCOME_OF = {status: outcome for outcome, members in OUTCOMES.items() for status in members}


DETAILED = 5000
"""Up to so many nodes each has a hover text of its own; beyond, a page would pass 20 MB."""


def outcome(status: Status) -> str:
    """The outcome that `status` is drawn as; the status itself is in the hover text and the tables."""
    return _OUTCOME_OF[status]


def layout(*, title: str, alt: str, height: int = 380, legend: bool = False, **more: Any) -> dict[str, Any]:
    """Layout that reads on light and dark backgrounds. `alt` says in words what the figure shows.

    The text travels as `layout.meta.alt`, where the report's exporter finds it.
    """
    return {
        "title": {"text": title, "x": 0, "xanchor": "left", "font": {"size": 15}},
        "meta": {"alt": alt},
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "#767676", "size": 13},
        "margin": {"l": 64, "r": 24, "t": 52, "b": 104 if legend else 52},
        "height": height,
        "showlegend": legend,
        "legend": {"orientation": "h", "x": 0, "yref": "container", "y": 0.01, "yanchor": "bottom"},
        "hoverlabel": {"align": "left"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "rgba(128,128,128,0.6)", "activecolor": "#767676"},
        **more,
    }


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with a quiet grid."""
    return {
        "title": {"text": title}, "gridcolor": "rgba(128,128,128,0.22)", "zeroline": False,
        "linecolor": "rgba(128,128,128,0.5)", "automargin": True, **more,
    }


def steps(last: int, **more: Any) -> dict[str, Any]:
    """The axis of nodes in the order recorded; whole numbers only."""
    return axis("candidate, in the order recorded", **({"dtick": 1} if last <= 12 else {}), **more)


def blank(figure: Any, message: str) -> Any:
    """Say in the middle of `figure` why there is nothing to see, and return it."""
    figure.add_annotation(text=message, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper",
                          font={"size": 14})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure
