"""The results as a picture, by matplotlib (extra `bench`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from server.bench.measure import Result


class PlotUnavailable(Exception):
    """matplotlib isn't installed."""


def draw_plot(results: Sequence[Result], path: Path) -> None:
    """Two rows of bars, time of a request and tokens a second, into an SVG or PNG file. Raises PlotUnavailable."""
    try:
        import matplotlib
    except ImportError as error:
        raise PlotUnavailable("no plot: it takes matplotlib (pip install 'gramserve[bench]')") from error
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    groups = list(dict.fromkeys((result.scenario, result.n_clients) for result in results))
    peers = list(dict.fromkeys(result.peer for result in results))
    figure = Figure(figsize=(2 + 1.2 * len(groups), 6), layout="constrained")
    for axes, (name, title) in zip(figure.subplots(2, 1), _PANELS, strict=True):
        for place, peer in enumerate(peers):
            found = {(one.scenario, one.n_clients): one for one in results if one.peer == peer and one.rounds}
            heights = [found[group].median(name) if group in found else 0.0 for group in groups]
            width = 0.8 / len(peers)
            bars = axes.bar(
                [x + (place - (len(peers) - 1) / 2) * width for x in range(len(groups))], heights, width, label=peer
            )
            axes.bar_label(bars, fmt="%.3g", fontsize=7)
        axes.set_title(title)
        axes.set_xticks(range(len(groups)), [f"{scenario}\n{n} client{'s' * (n > 1)}" for scenario, n in groups])
        axes.legend()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


_PANELS = (("seconds_a_request", "seconds a request (less is better)"), ("tokens_a_second", "tokens a second (more is better)"))
