"""What fine-tuning did to the encoder, seen on one text: the [CLS] vector and whom [CLS] looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from core.classifier import Classifier
from core.models import LoadedModel, share_weights
from core.text import Reading

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel


def cls_similarity(m: LoadedModel, classifier: Classifier, reading: Reading) -> pd.DataFrame:
    """Cosine of the [CLS] vectors before and after, by layer; layer 0 is the input vector.

    Columns: layer, cosine.
    """
    import pandas as pd

    before, after = (
        np.stack([layer[0, 0].float().cpu().numpy() for layer in output.hidden_states])
        for output in _both(m, classifier, reading)
    )
    norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    return pd.DataFrame({"layer": range(len(before)), "cosine": (before * after).sum(1) / norms})


def cls_attention(m: LoadedModel, classifier: Classifier, reading: Reading) -> pd.DataFrame:
    """Attention of [CLS] in the last layer, mean over heads, before and after.

    A row a token that the model reads, [CLS] and [SEP] included: position (0 = first), token,
    before, after. Each of the two sums to 1.
    """
    import pandas as pd

    before, after = (
        output.attentions[-1][0].mean(0)[0].float().cpu().numpy()
        for output in _both(m, classifier, reading)
    )
    tokens = [m.token(i) for i in reading.input_ids]
    return pd.DataFrame(
        {"position": range(len(tokens)), "token": tokens, "before": before, "after": after}
    )


def _both(m: LoadedModel, classifier: Classifier, reading: Reading) -> tuple[Any, Any]:
    """One pass over the text by the encoder of the model, and by that of the classifier."""
    twin = share_weights(classifier.model)
    twin.set_attn_implementation("eager")  # the only one that returns its weights
    return _pass(m.attending, reading), _pass(twin, reading)


def _pass(model: PreTrainedModel, reading: Reading) -> Any:
    import torch

    ids = torch.tensor([reading.input_ids], device=model.device)
    with torch.inference_mode():
        return model.base_model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            output_attentions=True,
            output_hidden_states=True,
        )
