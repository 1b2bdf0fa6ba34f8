"""Home: what the app is, what the loaded model is, and a way into each page."""

import pandas as pd
import streamlit as st

from core import session
from core.datasets import DEFAULT_SENTENCE
from core.models import DEFAULT, DEFAULT_FOLDER

session.framed()

m = session.model()
info = m.info

st.title("Cloze")
st.markdown(
    "A live laboratory for BERT and masked language models. Hide a word, and see what a real model "
    "expects in its place. **Every number on these pages is computed now by the model named in the "
    "side bar**, on your own text if you like, with no network needed."
)
for page, summary in session.pages_with_summaries()[1:]:
    with st.container(border=True):
        st.page_link(page, label=page.title, icon=page.icon)
        st.caption(summary)

st.subheader("The loaded model")
columns = st.columns(5)
columns[0].metric("Layers", info.layers)
columns[1].metric("Attention heads", info.heads, help="In each layer")
columns[2].metric("Hidden size", info.hidden, help="Numbers in the vector of one token")
columns[3].metric("Parameters", f"{info.parameters / 1e6:.1f} M")
columns[4].metric("Vocabulary", f"{info.vocabulary:,}")

left, right = st.columns(2, gap="large")
with left:
    st.markdown("**Where its parameters are**")
    parts = {
        "Embeddings": info.embeddings,
        "Encoder layers": info.encoder,
        "Masked-LM head": info.head,
    }
    st.dataframe(
        pd.DataFrame(
            {
                "Part": list(parts),
                "Parameters": list(parts.values()),
                "Share": [100 * count / info.parameters for count in parts.values()],
            }
        ),
        hide_index=True,
        column_config={
            "Parameters": st.column_config.NumberColumn(format="localized"),
            "Share": st.column_config.ProgressColumn(format="%.0f %%", min_value=0, max_value=100),
        },
    )
    st.caption("The head's output matrix is that of the embeddings, and is counted there.")
with right:
    st.markdown("**Beside the models of the BERT paper** (Devlin et al. 2019)")
    st.dataframe(
        pd.DataFrame(
            [
                ("This model", info.layers, info.hidden, info.heads, info.parameters / 1e6),
                ("BERT-base", 12, 768, 12, 110.0),
                ("BERT-large", 24, 1024, 16, 340.0),
            ],
            columns=["Model", "Layers", "Hidden size", "Heads", "Parameters (M)"],
        ),
        hide_index=True,
        column_config={"Parameters (M)": st.column_config.NumberColumn(format="%.1f")},
    )
st.caption(
    f"{session.escape(info.name)} · family {session.escape(info.family)} · weights "
    f"{m.weights_hash} · reads up to {info.max_tokens} tokens · runs on {info.device}"
)

if info.name == DEFAULT:
    with st.expander("Model card of the embedded model", icon=":material/description:"):
        st.markdown((DEFAULT_FOLDER / "README.md").read_text(encoding="utf-8"))

st.subheader("What the model reads")
st.markdown(
    "A sentence is cut into tokens of the vocabulary; the model adds **[CLS]**, whose vector can "
    "stand for the whole text, and **[SEP]**, which ends each text. In a pair, **segment ids** "
    "tell the first text (0) from the second (1)."
)
pair = (DEFAULT_SENTENCE, "It was asleep.")
for title, texts in (("One sentence", pair[:1]), ("A pair", pair)):
    encoding = m.backend.encode(*texts)
    st.caption(title)
    st.dataframe(
        pd.DataFrame(
            [encoding.tokens, [str(i) for i in encoding.ids], [str(i) for i in encoding.type_ids]],
            index=["Token", "Vocabulary id", "Segment id"],
            columns=[str(i) for i in range(len(encoding.ids))],
        )
    )
if getattr(m.model.config, "type_vocab_size", 1) < 2:
    st.caption("This model has no segment embeddings: it does not read the segment ids.")
