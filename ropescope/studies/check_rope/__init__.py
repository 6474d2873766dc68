"""Is the rotation right? The check of a model, of any runtime's dumped queries and keys, and of faults made on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..study import Study, later, option

here = later(__name__)


@dataclass(frozen=True)
class Settings:
    """What to check, and against what."""

    source: str = option(
        ..., "Hub id, folder or GGUF file of a model; or the manifest (JSON) of dumped queries and keys.", argument=True
    )
    reference: str = option(
        "config", "What is right: config (its own claim), a model that transformers runs, or the manifest of another dump."
    )
    tokens: int = option(64, "For models: tokens of a pass.")
    farthest: int | None = option(None, "For models: largest position.  [default: the end of the context]")
    rounds: int = option(0, "For models: how often to time the check against a plain pass over as many tokens.")
    dtype: str = option("auto", "Precision of models: auto, float32, float64, bfloat16 or float16.")
    device: str = option("auto", "Device of models: auto, cpu, cuda, ...")
    revision: str | None = option(None, "Branch, tag or commit of a hub id.")
    seed: int = option(0, "Recorded; nothing here is random.")

    def __post_init__(self) -> None:
        if self.tokens < 8:
            raise ValueError(f"tokens must be at least 8, not {self.tokens}")
        if self.farthest is not None and self.farthest < 8:
            raise ValueError(f"farthest must be at least 8, not {self.farthest}")


@dataclass(frozen=True)
class FaultSettings:
    """Which models get faults."""

    model: str = option(..., "Folder of a trained model, or tiny: random models of every family.", argument=True)
    lengths: tuple[int, ...] = option((32, 200, 3000), "Tokens after which text and logits are compared, for trained models.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 20 or list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError(f"lengths must grow and be at least 20, not {self.lengths}")


def _folder(settings: Settings) -> Path:
    path = Path(settings.source)
    return Path("out") / f"check-rope-{path.parent.name if path.suffix == '.json' else path.stem}"


def _fault_folder(settings: FaultSettings) -> Path:
    return Path("out") / f"rope-faults-{Path(settings.model).name}"


STUDIES = (
    Study(
        "check-rope",
        heading="Is the rotation right?",
        help="Check the rotation (RoPE) of every layer of a model, or of queries and keys that any runtime has dumped.\n\n"
        "It ends with code 1 if a layer departs from the reference.",
        examples=(
            "ropescope check-rope weights/smollm2-135m",
            "ropescope check-rope out/mlx/manifest.json --reference weights/smollm2-135m",
        ),
        group="Checks",
        settings=Settings,
        run=here("run:run"),
        out=_folder,
        title=here("tables:title"),
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
        failed=here("tables:failed"),
    ),
    Study(
        "rope-faults",
        heading="Faults of rotation, made on purpose",
        help="Make known faults of rotation on purpose, and see which of check-rope, greedy text and logits find them.",
        examples=("ropescope rope-faults tiny", "ropescope rope-faults weights/smollm2-135m"),
        group="Checks",
        settings=FaultSettings,
        run=here("faulty:run"),
        out=_fault_folder,
        title=here("fault_tables:title"),
        headline=here("fault_tables:headline"),
        figures=here("fault_tables:figures"),
        tables=here("fault_tables:tables"),
        dataset=here("fault_tables:dataset"),
    ),
)
