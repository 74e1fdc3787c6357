"""Source `hf:`: a model of the Hugging Face Hub, by file name or by the name of a quantization.

`huggingface_hub` does the fetching (with the user's token and mirror settings, resuming, and its own progress bar).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from server.models.errors import FetchFailed
from server.models.gguf import model_name, split_parts
from server.models.progress import Progress

_REPO = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")
_QUANTIZATION = re.compile(
    r"(?<![A-Za-z0-9])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|BF16|FP?16|FP?32))(?![A-Za-z0-9_])", re.IGNORECASE
)
_PREFERRED = ("Q4_K_M", "Q8_0", "Q4_0")


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository with a quantization (None: a usual one is picked) or with one of its files. `revision` None is main."""

    text: str
    repo: str
    quantization: str | None = None
    file: str | None = None
    revision: str | None = None

    @staticmethod
    def parse(text: str) -> HubSource:
        """`hf:owner/name`, `hf:owner/name:Q8_0`, `hf:owner/name#file.gguf`, each with `@revision` after the name."""
        place, has_file, file = text.removeprefix("hf:").partition("#")
        place, has_quantization, quantization = place.partition(":")
        repo, has_revision, revision = place.partition("@")
        if not _REPO.match(repo):
            raise ValueError(f"{repo!r} is not a repository, as in hf:owner/name:Q8_0 or hf:owner/name#file.gguf")
        if has_file and has_quantization:
            raise ValueError("an hf: source names a quantization or a file, not both")
        for mark, value in ((has_file, file), (has_quantization, quantization), (has_revision, revision)):
            if mark and not value:
                raise ValueError(f"nothing stands after {mark!r}")
        return HubSource(text, repo, quantization or None, file or None, revision or None)

    def fetch(self, folder: Path, progress: Progress) -> tuple[Path, ...]:  # noqa: ARG002 - the hub draws its own bar
        """The file, or all parts of a split one, put into `folder`. Raises FetchFailed."""
        import huggingface_hub
        from huggingface_hub.utils.tqdm import disable_progress_bars

        if not sys.stderr.isatty():
            disable_progress_bars()
        try:
            names = pick_files(huggingface_hub.list_repo_files(self.repo, revision=self.revision), self)
            return tuple(
                Path(huggingface_hub.hf_hub_download(self.repo, name, revision=self.revision, local_dir=folder))
                for name in names
            )
        except FetchFailed:
            raise
        except Exception as error:  # the hub's own tree, its HTTP client's, OSError and ValueError: all mean "not fetched"
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise FetchFailed(f"can't fetch {self.text}: {reason[0]}") from error


def pick_files(names: Sequence[str], source: HubSource) -> tuple[str, ...]:
    """The files of a repository that `source` means, first part first. Raises FetchFailed, which lists what there is."""
    models = [name for name in names if name.lower().endswith(".gguf") and not _is_companion(name)]
    first = _named_file(names, source.file) if source.file is not None else _by_quantization(models, source)
    folder = PurePosixPath(first).parent
    parts = tuple(str(folder / part) for part in split_parts(PurePosixPath(first).name))
    for part in parts:
        if part not in names:
            raise FetchFailed(f"{source.repo} lacks {part}, a part of the split model {first}")
    return parts


def _is_companion(name: str) -> bool:
    """Files that go beside a model and can't be loaded as one."""
    stem = PurePosixPath(name).name.lower()
    return stem.startswith(("mmproj", "imatrix")) or "-imatrix" in stem


def _named_file(names: Sequence[str], file: str) -> str:
    if file in names:
        return file
    raise FetchFailed(
        f"the repository has no file {file!r} (GGUF files: {', '.join(n for n in names if n.endswith('.gguf')) or 'none'})"
    )


def _by_quantization(models: Sequence[str], source: HubSource) -> str:
    """The first part of the one model that has the quantization: an exact name wins over a longer one (Q4_K over Q4_K_M)."""
    firsts = [name for name in models if split_parts(PurePosixPath(name).name)[0] == PurePosixPath(name).name]
    wanted = (source.quantization,) if source.quantization is not None else _PREFERRED
    for quantization in wanted:
        exact = [name for name in firsts if quantization.lower() in {found.lower() for found in quantizations(name)}]
        if exact:
            return min(exact, key=lambda name: (len(name), name))
    if source.quantization is None and len(firsts) == 1:
        return firsts[0]
    if source.quantization is not None:
        longer = [
            name for name in firsts if any(q.lower().startswith(source.quantization.lower() + "_") for q in quantizations(name))
        ]
        if len(longer) == 1:
            return longer[0]
    available = sorted({q for name in firsts for q in quantizations(name)[-1:]})
    asked = "no quantization is named" if source.quantization is None else f"no {source.quantization}"
    raise FetchFailed(f"{source.repo}: {asked}; it has {', '.join(available) or 'no GGUF file'}")


def quantizations(name: str) -> tuple[str, ...]:
    """The quantizations that a file's path names, with and without a `UD-` before them: `a/x-Q4_K_M.gguf` → ("Q4_K_M",)."""
    path = PurePosixPath(name)
    found = _QUANTIZATION.findall(f"{path.parent}/{model_name(path.name)}")
    return tuple(dict.fromkeys(form for q in found for form in (q, q.removeprefix("UD-"))))
