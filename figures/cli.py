"""The command ``expqk``; heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from figures.gallery import FIGURES, NAMES

PROFILES = ("quick", "default", "full")
LANGUAGES = ("en", "zh")
MOST = 1000  # characters of an error: room for the names of all methods, or all figures


def main(argv: list[str] | None = None) -> int:
    """Run a command; return 0, 1 where it failed, 2 for a usage error."""
    for name in ("stdout", "stderr"):  # closed by the shell, >&-
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    arguments = parser().parse_args(argv)
    if arguments.max_memory is not None:
        from approx import memory

        memory.set_limit(arguments.max_memory)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except (
        ValueError, TypeError, OSError, ImportError, ArithmeticError, MemoryError, RuntimeError,
    ) as error:  # fmt: skip
        return _failed(error)
    except KeyboardInterrupt:
        print("expqk: interrupted", file=sys.stderr)
        return 1


def _failed(error: Exception) -> int:
    """Say in one line what failed; return 1."""
    from analysis.files import one_line

    try:
        sys.stdout.flush()
    except OSError:  # full, or nobody reads it: what is left must not be tried again at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        print(f"expqk: {one_line(error, MOST) or type(error).__name__}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of every command."""
    top = argparse.ArgumentParser(
        prog="expqk",
        description="How well do cheap attention methods approximate exp(q·k), and which one fits?",
    )
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        added.add_argument(
            "--max-memory", type=_bytes, metavar="SIZE", help="such as 4G; half of what is free"
        )
        return added

    report = command("report", _report, "From Q, K to a report: HTML, PDF, figures, tables.")
    _add_profile(report)
    report.add_argument("--out", type=Path, default=Path("report"), help="folder [report]")
    report.add_argument("--title", metavar="TEXT", help="as it is: nothing in it is markup")
    report.add_argument("--author", action="append", metavar="NAME", help="repeatable")
    report.add_argument(
        "--rebuild",
        action="store_true",
        help="only turn OUT/report.md, as edited, into HTML and PDF",
    )

    figures = command(
        "figures",
        _figures,
        "List the figures; draw those named into OUT/figures, with what each shows in NAME.txt, "
        "from OUT/data/NAME.csv where that is there and none of --qk, --heads, --profile, --budget "
        "and --seed is given.",
    )
    figures.add_argument(
        "names", nargs="*", metavar="NAME", help=f"all, or of {', '.join(NAMES)}; none: list them"
    )
    _add_profile(figures)
    figures.add_argument(
        "--recompute", action="store_true", help="also where there is a table: OUT/data/NAME.csv"
    )
    figures.add_argument("--out", type=Path, default=Path("out"), help="folder [out]")
    figures.add_argument(
        "--format", type=_formats, default=("pdf", "svg", "png"), help="pdf,svg,png"
    )

    diagnose = command(
        "diagnose", _diagnose, "Advice for every head of a file: which method at this budget?"
    )
    diagnose.add_argument("file", type=Path, metavar="FILE", help=".npz, .safetensors, folder")
    diagnose.add_argument("--heads", type=_heads, metavar="L.H,…", help="of FILE; all")
    diagnose.add_argument("--budget", type=float, default=32.0, help="values a query row [32]")
    diagnose.add_argument("--temperature", type=float, default=1.0, metavar="t", help="[1]")
    diagnose.add_argument(
        "--method", action="append", metavar="SPEC", help="instead of the usual ones; repeatable"
    )
    diagnose.add_argument("--trials", type=int, default=5, help="draws of a random method [5]")
    _add_language(diagnose)
    diagnose.add_argument("--seed", type=int, default=0, help="[0]")
    _add_jobs(diagnose)
    diagnose.add_argument("--json", action="store_true", help="one object a (layer, head, method)")
    diagnose.add_argument("--out", type=Path, help="folder for the table and a map of the winners")

    sweep = command("sweep", _sweep, "Methods × inputs × temperatures × budgets × trials: a table.")
    sweep.add_argument(
        "config", type=Path, metavar="CONFIG.toml", help="or quick.toml, report.toml, full.toml"
    )
    sweep.add_argument(
        "--store", type=Path, required=True, metavar="DIR", help="an existing one is resumed"
    )
    _add_jobs(sweep)
    sweep.add_argument(
        "--scheduler",
        type=_scheduler,
        metavar="tcp://HOST:PORT",
        help="of a Dask cluster; or local",
    )
    sweep.add_argument("--shard", type=_shard, metavar="i/N", help="this part only, of 1 … N")
    sweep.add_argument(
        "--dry-run", action="store_true", help="only say how many cells, how much memory and time"
    )
    sweep.add_argument("--retry-failed", action="store_true", help="try cells again that failed")

    verify = command(
        "verify", _verify, "Compute a random part of a store again and compare exactly."
    )
    verify.add_argument("store", type=Path, metavar="STORE")
    verify.add_argument("--part", type=float, default=0.05, help="of the cells [0.05]")
    verify.add_argument("--seed", type=int, default=0, help="of the choice [0]")
    _add_jobs(verify)

    methods = command("methods", _methods, "List the methods, or describe one.")
    methods.add_argument("name", nargs="?", help="one method: formula, moments, cost, source")
    methods.add_argument("--json", action="store_true", help="for machines")

    claims = command(
        "claims", _claims, "Check every claim of the source documents: expected, observed, verdict."
    )
    claims.add_argument("ids", nargs="*", metavar="ID", help="FL-7, or a beginning: FL, FL-E; all")
    claims.add_argument("--json", action="store_true", help="for machines, in English")
    _add_language(claims)
    _add_jobs(claims)

    capture = command("capture", _capture, "Q, K, V of a local Hugging Face transformer on a text.")
    capture.add_argument("model", type=Path, metavar="MODEL_DIR")
    capture.add_argument("text", type=Path, metavar="TEXT", help="a UTF-8 text file")
    capture.add_argument("--out", type=Path, required=True, help=".npz or .safetensors")
    capture.add_argument("--heads", type=_heads, metavar="L.H,…", help="keep these only")
    capture.add_argument("--max-tokens", type=int, default=512, metavar="N", help="[512]")
    return top


class _Version(argparse.Action):
    """Print the version, which only this option looks up."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print("expqk", _version())
        parser.exit()


def _version() -> str:
    """Return the version of the package, or that of a source tree which is not installed."""
    from importlib import metadata

    try:
        return metadata.version("expqk")
    except metadata.PackageNotFoundError:
        import tomllib

        text = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
        return str(tomllib.loads(text)["project"]["version"])


def _add_profile(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--qk", type=Path, metavar="FILE", help="your tensors: .npz, .safetensors, folder"
    )
    command.add_argument(
        "--heads", type=_heads, metavar="L.H,…", help="of FILE; three by range of logits"
    )
    command.add_argument("--profile", choices=PROFILES, help="[default]")
    command.add_argument("--budget", type=float, help="values a query row [32]")
    _add_language(command)
    command.add_argument("--seed", type=int, help="[0]")
    _add_jobs(command)


def _add_language(command: argparse.ArgumentParser) -> None:
    command.add_argument("--lang", choices=LANGUAGES, default="en", help="English or Chinese [en]")


def _add_jobs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes [all]"
    )


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    size = float(found[1]) * 1024.0 ** " KMGT".index((found[2] or " ").upper()) if found else 0.0
    if not 1 <= size < 2**63:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a size such as 4G")
    return int(size)


def _heads(text: str) -> list[tuple[int, int]]:
    pairs = [re.fullmatch(r"(\d{1,9})\.(\d{1,9})", part.strip()) for part in text.split(",")]
    if not all(pairs):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not LAYER.HEAD,LAYER.HEAD,… such as 0.3,5.11"
        )
    return [(int(p[1]), int(p[2])) for p in pairs if p]


def _formats(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    if not set(kinds) <= {"pdf", "svg", "png"}:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a list of pdf, svg, png")
    return kinds


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not i/N with 1 ≤ i ≤ N, such as 2/8")
    return int(found[1]), int(found[2])


def _scheduler(text: str) -> str:
    if text != "local" and not re.fullmatch(r"(tcp|tls|ucx|ws|wss)://[^\s/]+:\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not tcp://HOST:PORT, nor local")
    return text


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options given that decide the numbers, by their names in `profile`."""
    names = {"profile": "name", "qk": "path", "heads": "heads", "budget": "budget", "seed": "seed"}
    found = {ours: getattr(arguments, option) for option, ours in names.items()}
    return {name: value for name, value in found.items() if value is not None}


def _profile(arguments: argparse.Namespace) -> Any:
    from figures.profile import profile

    settings = _settings(arguments)
    return profile(**settings, jobs=arguments.jobs, progress=sys.stderr.isatty())


def _report(arguments: argparse.Namespace) -> int:
    from figures.language import speaking, tr
    from figures.report.build import TITLE, build, rebuild

    if arguments.rebuild:
        if arguments.title or arguments.author:
            raise ValueError("--rebuild takes title and authors from report.md: edit them there")
        rebuild(arguments.out)
    else:
        with speaking(arguments.lang):
            title, authors = arguments.title or tr(TITLE), arguments.author or ()
            build(_profile(arguments), arguments.out, title=title, authors=authors)
    for name in ("index.html", "report.pdf", "report.md"):
        print(arguments.out / name)
    return 0


def _figures(arguments: argparse.Namespace) -> int:
    from analysis import files
    from approx import checks
    from figures import album
    from figures.language import speaking, tr

    anew = arguments.recompute or bool(_settings(arguments))
    if not arguments.names:
        if anew:
            raise ValueError("which figures? Names of them, or all")
        print(album.listing())
        return 0
    for name in arguments.names:
        if name not in (known := [*FIGURES, "all"]):
            raise ValueError(checks.unknown("figure", name, known))
    names = list(FIGURES) if "all" in arguments.names else list(dict.fromkeys(arguments.names))
    files.usable(arguments.out)
    profile = _profile(arguments)
    with speaking(arguments.lang):
        for name in names:
            module = FIGURES[name]
            table = None if anew else album.saved(name, arguments.out)
            if table is None:
                table = module.compute(profile)
            else:
                print(
                    f"expqk: {name} is drawn from {arguments.out / 'data' / name}.csv; "
                    "--recompute computes it anew",
                    file=sys.stderr,
                )
            caption = f"{tr(module.TITLE)}\n\n{module.caption(table)}"
            for path in album.save(name, table, arguments.out, arguments.format, caption):
                print(path)
    return 0


def _diagnose(arguments: argparse.Namespace) -> int:
    from analysis import files
    from analysis.diagnose import diagnose
    from analysis.inputs import load
    from approx import parse
    from figures import diagnosis, style
    from figures.language import speaking

    if arguments.out is not None:
        files.usable(arguments.out)
    whole = load(arguments.file)
    with speaking(arguments.lang):
        table = diagnose(
            whole if arguments.heads is None else [whole.at(*one) for one in arguments.heads],
            budget=arguments.budget,
            methods=None if arguments.method is None else [parse(s) for s in arguments.method],
            temperature=arguments.temperature,
            trials=arguments.trials,
            seed=arguments.seed,
            jobs=arguments.jobs,
            progress=sys.stderr.isatty(),
        )
        if arguments.json:
            print(json.dumps(diagnosis.objects(table), ensure_ascii=False, indent=2))
        else:
            print(diagnosis.text(table))
        if arguments.out is not None:
            drawn, said = diagnosis.draw(table), diagnosis.caption(table)
            for path in style.save("diagnosis", table, drawn, arguments.out, caption=said):
                print(path, file=sys.stderr)
    return 0


def _sweep(arguments: argparse.Namespace) -> int:
    from approx import checks
    from figures import sweeping

    checks.integer("jobs", arguments.jobs, least=1)
    return sweeping.sweep(arguments)


def _verify(arguments: argparse.Namespace) -> int:
    from approx import checks
    from figures import sweeping

    checks.integer("jobs", arguments.jobs, least=1)
    return sweeping.verify(arguments)


def _methods(arguments: argparse.Namespace) -> int:
    from figures.listing import about, describe, listing

    if arguments.json:
        found = about(arguments.name) if arguments.name else listing()
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return 0
    if arguments.name:
        print(describe(arguments.name))
        return 0
    rows = listing()
    widths = [
        max(len(str(row[key])) for row in [*rows, {k: k for k in rows[0]}]) for key in rows[0]
    ]
    for row in [{k: k for k in rows[0]}, *rows]:
        print("  ".join(str(v).ljust(w) for v, w in zip(row.values(), widths)).rstrip())
    return 0


def _claims(arguments: argparse.Namespace) -> int:
    import shutil

    from analysis.claims import check
    from analysis.claims.evidence import FAILS
    from figures.claims import rows, table
    from figures.language import speaking

    found = check(*arguments.ids, jobs=arguments.jobs, progress=sys.stderr.isatty())
    if arguments.json:
        print(json.dumps(rows(found), ensure_ascii=False, indent=2))
    else:
        with speaking(arguments.lang):
            print(table(found, shutil.get_terminal_size((120, 24)).columns))
    return int(any(claim.verdict == FAILS for claim in found))


def _capture(arguments: argparse.Namespace) -> int:
    from analysis.capture import capture, save

    if arguments.out.suffix not in (".npz", ".safetensors"):
        raise ValueError(f"--out must end in .npz or .safetensors, got {arguments.out}")
    captured = capture(arguments.model, arguments.text, max_tokens=arguments.max_tokens)
    save(captured, arguments.out, heads=arguments.heads)
    print(arguments.out)
    return 0
