"""What supports of equal size find: attention mass against temperature, recall of the top keys."""

import functools

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from analysis.experiments.support_recall import recall
from figures.drawing import style
from figures.words import amounts
from figures.words.translation import tr

TITLE = "What a support finds"
ORDER = 70
SPECS = (
    "top_k", "sliding_window", "chunk", "strided", "random", "lsh(rounds=8)",
    "lsh(rounds=8, transform='xbox')", "smyrf(rounds=4)", "reformer(rounds=2)",
)  # fmt: skip
FADED = "chunk", "strided", "lsh(transform='xbox')"
KS = (1, 2, 4, 8, 16, 32, 64)
FLOOR = 0.01


def compute(profile: Profile) -> pd.DataFrame:
    """Return entries a row, mass and recall of every support at the budget."""
    ks = [k for k in KS if k <= min(x.l for x in profile.inputs)]
    measure = functools.partial(recall, ks=ks)
    return profile.sweep(
        SPECS, budget=profile.budget, currency=profile.currency, measure=measure, label="supports"
    )


def draw(table: pd.DataFrame) -> Figure:
    """Draw one row of panels an input: mass against temperature, recall against k."""
    inputs = table.input.unique().tolist()
    ts, ks = sorted(table.temperature.unique()), _recalls(table).index.tolist()
    with style.style():
        figure, axes = style.panels(len(inputs), 2, y=tr("share"))
        for row, name in enumerate(inputs):
            mass, top = axes[row]
            part = table[table.input == name]
            for spec in style.order(part.method.tolist()):
                look, of_spec = style.look(spec), part[part.method == spec]
                curve = of_spec[of_spec.metric == "mass"].groupby("temperature").value.mean()
                mass.plot(curve.index, curve.clip(lower=FLOOR), **look)
                curve = _recalls(of_spec)
                top.plot(curve.index, curve.clip(lower=FLOOR), **look)
            for ax in (mass, top):
                ax.set(xscale="log", yscale="log", ylim=(FLOOR * 0.9, 1.15))
            style.x_ticks(top, ks)
            style.x_ticks(mass, ts)
            mass.set_title(tr("{name}: attention held", name=name))
            top.set_title(tr("{name}: top k keys found", name=name))
        axes[-1, 0].set_xlabel(tr("temperature t"))
        axes[-1, 1].set_xlabel("k")
        style.legend(figure, list(axes.flat), faded=map(style.label, FADED))
    return figure


def _recalls(part: pd.DataFrame) -> pd.Series:
    """Return the mean over trials of each recall; no temperature changes it."""
    recalls = part[part.metric.str.startswith("recall_")]
    k = recalls.metric.str.removeprefix("recall_").astype(int)
    return recalls.groupby(k).value.mean()


def finding(table: pd.DataFrame) -> str:
    mean = table.pivot_table(index=["input", "method"], columns="metric", values="value")
    eight = f"recall_{max(k for k in _recalls(table).index if k <= 8)}"
    found = mean[~mean.index.get_level_values("method").str.startswith("top_k")][eight]
    best = found.groupby("input").max()
    return tr(
        "Beside top-k itself, the best support finds {least:.0%} to {most:.0%} of the {k} largest "
        "keys.",
        least=best.min(),
        most=best.max(),
        k=eight.removeprefix("recall_"),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "At {budget}. Left: the share of attention that is held. Right: the share found of each "
        "query's k largest keys.",
        budget=amounts.budget(table),
    )
