"""Write a tiny random Llama model as a GGUF file, so that tests run a real llama.cpp server.

Two layers of 64, some 600 kB, written in well under a second. Its weights are noise, so its text
is noise too, but everything around the text is real: slots, templates, streams, usage, errors.

The vocabulary is of the sentencepiece type with byte fallback: any prompt can be encoded. The
file says `add_space_prefix = false`, because with the prefix llama.cpp's grammar of a JSON schema
can never match the first token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

NAME = "tiny-random-llama"
CONTEXT_TOKENS = 8192

CHAT_ML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_CONTROL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
_WORDS = ("the", "and", "queue", "water", "node", "slot", "wait", "turn", "ing", "er", "is", "a")


@dataclass(frozen=True)
class Size:
    """How large the model is."""

    layers: int = 2
    width: int = 64
    hidden: int = 128
    heads: int = 4


TINY = Size()


def write_tiny_model(
    path: Path, seed: int = 7, size: Size = TINY, words: Sequence[str] = ()
) -> Path:
    """Write the model to `path` and return it; the same seed gives the same weights.

    Each of `words` is one token with the blank before it. Other text is a token for a letter.
    """
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(NAME)
    writer.add_block_count(size.layers)
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(size.width)
    writer.add_feed_forward_length(size.hidden)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.heads)
    writer.add_rope_dimension_count(size.width // size.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_pooling_type(gguf.PoolingType.MEAN)  # else /v1/embeddings refuses it
    vocabulary_size = _add_vocabulary(writer, words)
    writer.add_vocab_size(vocabulary_size)
    _add_weights(writer, vocabulary_size, size, np.random.default_rng(seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_vocabulary(writer: gguf.GGUFWriter, words: Sequence[str]) -> int:
    """Add the tokenizer and return how many tokens it has."""
    kinds = gguf.TokenType
    tokens = [(text, 0.0, kinds.CONTROL) for text in _CONTROL]
    tokens[0] = (_CONTROL[0], 0.0, kinds.UNKNOWN)
    tokens += [(f"<0x{byte:02X}>", 0.0, kinds.BYTE) for byte in range(256)]
    # Sentencepiece writes a blank as U+2581; longer pieces score higher, so that they are merged.
    letters = [chr(code) for code in range(ord(" ") + 1, 127)] + ["\u2581"]
    pieces = [*letters, *(f"\u2581{word}" for word in _WORDS)]
    # Two pieces are merged only into one that there is, so a word needs all its beginnings.
    begun = {f"\u2581{word[:end]}" for word in words for end in range(1, len(word) + 1)}
    pieces += sorted(begun.difference(pieces), key=lambda piece: (len(piece), piece))
    tokens += [(piece, -float(rank), kinds.NORMAL) for rank, piece in enumerate(reversed(pieces))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _, _ in tokens])
    writer.add_token_scores([score for _, score, _ in tokens])
    writer.add_token_types([kind for _, _, kind in tokens])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(4)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_ML)
    return len(tokens)


def _add_weights(
    writer: gguf.GGUFWriter, vocabulary_size: int, size: Size, random: np.random.Generator
) -> None:
    def noise(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return random.standard_normal(shape, dtype=np.float32) * np.float32(0.1)

    width, hidden = size.width, size.hidden
    ones = np.ones(width, dtype=np.float32)
    writer.add_tensor("token_embd.weight", noise(vocabulary_size, width))
    writer.add_tensor("output.weight", noise(vocabulary_size, width))
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(size.layers):
        block = f"blk.{layer}"
        writer.add_tensor(f"{block}.attn_norm.weight", ones)
        writer.add_tensor(f"{block}.ffn_norm.weight", ones)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"{block}.{part}.weight", noise(width, width))
        writer.add_tensor(f"{block}.ffn_gate.weight", noise(hidden, width))
        writer.add_tensor(f"{block}.ffn_up.weight", noise(hidden, width))
        writer.add_tensor(f"{block}.ffn_down.weight", noise(width, hidden))
