"""Load a masked language model by name or folder, check it, describe it.

Leaves the reading of text to `text`, and what the model predicts to `prediction`. A loaded model is
shared by everyone who asks for it and is never changed: what trains, trains a copy.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import ModelError
from core.masking import Vocabulary, vocabulary_of

if TYPE_CHECKING:  # torch and transformers take a second to import: only when a model is loaded
    import torch
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["DEFAULT", "LoadedModel", "ModelError", "ModelInfo", "load_model"]

logger = logging.getLogger(__name__)

DEFAULT = "embedded"
ASSETS = Path(__file__).parent / "assets"
DEFAULT_FOLDER = ASSETS / "cloze-minilm"

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_FOLDER = re.compile(r"(/|~|\.{1,2}(/|\\|$)|[A-Za-z]:[\\/]|\\)")
_LOADING = threading.Lock()  # transformers' loading flips process-wide defaults


@dataclass(frozen=True)
class ModelInfo:
    """What a model is. Parameters are counted once where two layers share them."""

    name: str
    family: str  # transformers' model_type, such as "bert"
    layers: int
    heads: int
    hidden: int
    parameters: int
    embeddings: int  # parameters before the first layer
    encoder: int  # parameters of the layers
    head: int  # parameters of the masked-LM head that are not shared with the embeddings
    vocabulary: int
    max_tokens: int  # the longest input, [CLS] and [SEP] included
    device: str


@dataclass(frozen=True)
class LoadedModel:
    """A masked language model in evaluation mode, with its tokenizer and description."""

    model: PreTrainedModel
    info: ModelInfo
    _tokenizer: PreTrainedTokenizerBase
    _local: threading.local = field(default_factory=threading.local, repr=False)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, one copy per thread.

        A fast tokenizer stores truncation and padding on itself, so that two threads sharing one
        silently get each other's lengths (transformers issue 47085).
        """
        if not hasattr(self._local, "tokenizer"):
            self._local.tokenizer = copy.deepcopy(self._tokenizer)
        return self._local.tokenizer

    @property
    def backend(self) -> Tokenizer:
        """The tokenizer beneath, without truncation or padding. Only ever read, so safe to share."""
        return self._tokenizer.backend_tokenizer

    @property
    def mask_token(self) -> str:
        return str(self._tokenizer.mask_token)

    @property
    def mask_token_id(self) -> int:
        return int(self._tokenizer.mask_token_id)

    @property
    def unk_token(self) -> str | None:
        return self._tokenizer.unk_token

    @property
    def pad_token_id(self) -> int:
        return int(self._tokenizer.pad_token_id or 0)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self._tokenizer.all_special_ids)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """What masking needs to know of the tokenizer."""
        return vocabulary_of(self._tokenizer)

    @cached_property
    def attending(self) -> PreTrainedModel:
        """The same weights in modules that can return attention weights.

        Only transformers' eager implementation does; the fused one is faster and predicts. The two
        share every tensor, so that memory does not double.
        """
        twin = share_weights(self.model)
        twin.set_attn_implementation("eager")
        return twin

    @cached_property
    def weights_hash(self) -> str:
        """First 12 hexadecimal digits of SHA-256 over all weights, in order of their names."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()[:12]

    def token(self, token_id: int) -> str:
        """The vocabulary's own spelling of an id, such as "##ing"."""
        return self.backend.id_to_token(int(token_id)) or f"[id {token_id}]"


def load_model(name: str | Path = DEFAULT) -> LoadedModel:
    """Load a masked language model, ready to predict.

    `name` is "embedded" for the model that ships with the project, a name on the Hugging Face hub,
    or a folder: a `Path`, or text that starts with `/`, `./`, `../` or `~`. Bare text is always a
    hub name, so that a folder of the same name can't stand in for it.

    Only safetensors weights are read, and no code from the checkpoint is run. Raises `ModelError`
    with one clear sentence: not found, no access, not a model, or no trained masked-LM head.
    """
    source, shown = locate(name)
    with _LOADING:
        config = load_config(source, shown)
        tokenizer = load_tokenizer(source, shown)
        model = _load_weights(source, shown, config)
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise ModelError(
            f"{shown}: only models with a fast tokenizer (tokenizer.json) can be read."
        )
    if tokenizer.mask_token is None:
        raise ModelError(
            f"{shown}: its tokenizer has no mask token, so it was not trained to fill masks."
        )
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return wrap(model, tokenizer, name=shown)


def wrap(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, name: str) -> LoadedModel:
    """Describe a model that is already in memory and put it in evaluation mode."""
    model.eval()
    model.requires_grad_(False)
    return LoadedModel(model=model, info=_describe(model, tokenizer, name), _tokenizer=tokenizer)


def share_weights(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of the modules around the same tensors: what is changed in one's structure stays there."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, memo=shared)


def head_of(model: PreTrainedModel) -> Callable[[torch.Tensor], torch.Tensor]:
    """The masked-LM head as a function: hidden states (..., hidden) to logits (..., vocabulary).

    It lets vocabulary logits be computed at the asked positions only, where transformers would
    compute them at all. Raises `ModelError` for a family whose head we don't know.
    """
    head: Any
    for attribute in ("cls", "lm_head", "predictions"):
        head = getattr(model, attribute, None)
        if callable(head):
            return head
    m: Any = model
    if hasattr(m, "vocab_transform"):  # DistilBERT
        return lambda hidden: m.vocab_projector(
            m.vocab_layer_norm(m.activation(m.vocab_transform(hidden)))
        )
    if hasattr(m, "generator_predictions"):  # ELECTRA's generator
        return lambda hidden: m.generator_lm_head(m.generator_predictions(hidden))
    if hasattr(m, "lm_predictions"):  # DeBERTa, not in its first form
        return lambda hidden: m.lm_predictions(hidden, m.base_model.embeddings.word_embeddings)
    if hasattr(m, "decoder") and hasattr(m, "head"):  # ModernBERT
        return lambda hidden: m.decoder(m.head(hidden))
    raise ModelError(f"The masked-LM head of {type(model).__name__} has a form we don't know yet.")


def locate(name: str | Path) -> tuple[str, str]:
    """The folder that a name stands for, fetched from the hub if need be, and the name to show."""
    if isinstance(name, Path):
        return str(_checked_folder(name)), str(name)
    text = name.strip()
    if text == DEFAULT:
        return str(_checked_folder(DEFAULT_FOLDER)), DEFAULT
    if not text:
        raise ModelError("No model named: type a hub name such as bert-base-uncased, or a folder.")
    if _FOLDER.match(text):
        return str(_checked_folder(Path(text).expanduser())), text
    if not _HUB_NAME.fullmatch(text) or ".." in text or "--" in text:
        raise ModelError(
            f"“{text[:80]}” is not a model name: write it as owner/name, as on the hub, "
            "or start a folder with ./ or /."
        )
    return str(_checked_folder(_download(text))), text


def _download(name: str) -> Path:
    """The hub's files of a model, from its cache where the hub can't be reached.

    Fetched by name, since transformers would take a folder of that name for it.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                name,
                allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model"],
                ignore_patterns=["*/*"],
            )
        )
    except Exception as error:
        raise explain(name, error) from error


def _checked_folder(folder: Path) -> Path:
    if not folder.exists():
        raise ModelError(f"There is no folder {folder}.")
    if not folder.is_dir():
        raise ModelError(f"{folder} is a file; a model is the folder that holds config.json.")
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is not a model folder: it has no config.json.")
    if not any(folder.glob("*.safetensors")):
        pickled = any(folder.glob("*.bin"))
        raise ModelError(
            f"{folder} has no safetensors weights"
            + (": its .bin file is a pickle, which we don't open." if pickled else ".")
        )
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = json.loads(index.read_text()).get("weight_map", {}).values()
        if any(Path(shard).name != shard for shard in shards):
            raise ModelError(f"{folder}: its index points to files outside the folder; refused.")
    return folder


def load_config(source: str, shown: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(source, trust_remote_code=False)
    except Exception as error:
        raise explain(shown, error) from error


def load_tokenizer(source: str, shown: str) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:
        raise explain(shown, error) from error


def _load_weights(source: str, shown: str, config: Any) -> PreTrainedModel:
    """The model in float32, refused unless every weight it needs came from the checkpoint."""
    import torch
    from transformers import AutoModelForMaskedLM
    from transformers.utils import logging as transformers_logging

    if type(config) not in AutoModelForMaskedLM._model_mapping:
        raise ModelError(
            f"{shown} is a {config.model_type} model, a kind that was not trained to fill masks."
        )
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # its report of missing weights is our error
    transformers_logging.disable_progress_bar()
    try:
        model, report = AutoModelForMaskedLM.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:
        raise explain(shown, error) from error
    finally:
        transformers_logging.set_verbosity(verbosity)
    missing = sorted(report["missing_keys"])
    body = [key for key in missing if key.startswith(model.base_model_prefix + ".")]
    if missing and not body:
        raise ModelError(
            f"{shown} has no trained masked-LM head (its checkpoint lacks {missing[0]}): "
            "predictions would be random. Choose a checkpoint saved with its masked-LM head."
        )
    if missing or report["mismatched_keys"]:
        first = (body or sorted(str(key) for key in report["mismatched_keys"]))[0]
        raise ModelError(f"{shown}: its weights are incomplete or of other sizes ({first}).")
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def explain(shown: str, error: Exception) -> ModelError:
    """One sentence for what transformers or the hub raised."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    names = {type(link).__name__ for link in chain}
    text = " ".join(str(link) for link in chain)
    logger.info("loading %s failed: %r", shown, error)
    if "GatedRepoError" in names or "gated repo" in text:
        return ModelError(f"{shown} is gated on the hub: ask there for access, and log in.")
    if "RepositoryNotFoundError" in names:
        return ModelError(f"{shown} was not found on the hub, or is private.")
    if names & {
        "LocalEntryNotFoundError",
        "ConnectError",
        "ConnectTimeout",
        "OfflineModeIsEnabled",
    }:
        return ModelError(f"{shown} is not on this machine, and the hub can't be reached.")
    if "trust_remote_code" in text:
        return ModelError(f"{shown} needs code of its own to be run, which we never do.")
    first = str(error).strip().split("\n")[0][:200]
    return ModelError(f"{shown} can't be loaded: {first}")


def _describe(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str) -> ModelInfo:
    config: Any = model.config
    base = model.base_model
    total = sum(p.numel() for p in model.parameters())
    inside = sum(p.numel() for p in base.parameters())
    embeddings = sum(p.numel() for p in base.embeddings.parameters())
    return ModelInfo(
        name=name,
        family=config.model_type,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        hidden=config.hidden_size,
        parameters=total,
        embeddings=embeddings,
        encoder=inside - embeddings,
        head=total - inside,
        vocabulary=config.vocab_size,
        max_tokens=_max_tokens(model, tokenizer),
        device=str(next(model.parameters()).device),
    )


def _max_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Rows of the position table that a token can reach.

    RoBERTa and its kin (XLM-R, MPNet) count from the row after that of the padding.
    """
    table: Any = getattr(model.base_model.embeddings, "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    offset = 0 if padding is None else padding + 1
    rows = int(model.config.max_position_embeddings) - offset
    return min(rows, int(tokenizer.model_max_length))
