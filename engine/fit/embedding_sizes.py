"""Context and batch of a model that is loaded for embeddings.

Where a vector of every token comes out, llama.cpp also sets the logits of every token aside, a number for each word of
the vocabulary, needed or not. So a batch is only as large as that allows.
"""

from __future__ import annotations

import msgspec

from engine.fit.architectures import NO_MEMORY
from engine.fit.layers import ModelShape
from engine.worker.protocol import Load

#: longest text where nobody asks for more
MOST_TOKENS = 8192
_LEAST_TOKENS, _LEAST_BATCH, _STEP, _CELLS = 256, 32, 32, 256
#: bytes of logits of one batch: where texts may be divided, and where they must not be
_DIVIDED, _WHOLE = 128 << 20, 1 << 30


def reads_whole(shape: ModelShape) -> bool:
    """Whether the model looks both ways, so that a text cannot be divided."""
    return shape.architecture in NO_MEMORY or shape.architecture == "t5encoder" or not shape.causal


def sized(request: Load, shape: ModelShape) -> Load:
    """The request with the context and the batches that it will have."""
    trained = shape.n_ctx_train or MOST_TOKENS
    logits = 4 * max(1, shape.n_vocab)
    if reads_whole(shape):
        usual = max(_LEAST_TOKENS, min(MOST_TOKENS, _WHOLE // logits))
        n_ctx = min(trained, request.n_ctx or usual)
        batch = -(-n_ctx // _CELLS) * _CELLS  # as llama.cpp rounds the context
        return msgspec.structs.replace(request, n_ctx=n_ctx, n_batch=batch, n_ubatch=batch)
    n_ctx = request.n_ctx or min(trained, MOST_TOKENS)
    fitting = max(_LEAST_BATCH, _DIVIDED // logits // _STEP * _STEP)
    n_ubatch = min(request.n_ubatch, fitting, n_ctx)
    return msgspec.structs.replace(request, n_ctx=n_ctx, n_batch=n_ubatch, n_ubatch=n_ubatch)
