"""`POST /v1/responses` of the simulated node: OpenAI's dialect with the most events."""

from collections.abc import Iterator

from forebay.nodes.sim.dialects import SimAnswer, event


class Responses:
    """Writes a response with one message of one text part. One object serves one request."""

    def __init__(self) -> None:
        self._sequence = 0

    def whole(self, answer: SimAnswer) -> object:
        """Return a finished `response`."""
        return self._response(answer, is_done=True)

    def opening(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield the start of the response, of its message and of the text."""
        begun = self._response(answer, is_done=False)
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)
        item = self._item(answer, is_done=False)
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._part_event("response.content_part.added", answer, part=_part(""))

    def word(self, answer: SimAnswer, word: str) -> bytes:
        return self._part_event("response.output_text.delta", answer, delta=word, logprobs=[])

    def closing(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield the end of everything that was begun, the response last."""
        text = answer.text
        yield self._part_event("response.output_text.done", answer, text=text, logprobs=[])
        yield self._part_event("response.content_part.done", answer, part=_part(text))
        item = self._item(answer, is_done=True)
        yield self._event("response.output_item.done", output_index=0, item=item)
        ending = "response.incomplete" if answer.is_cut else "response.completed"
        yield self._event(ending, response=self._response(answer, is_done=True))

    def _part_event(self, kind: str, answer: SimAnswer, **fields: object) -> bytes:
        item_id = f"msg_{answer.id}"
        return self._event(kind, item_id=item_id, output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        body = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return event(body, kind)

    def _item(self, answer: SimAnswer, is_done: bool) -> dict[str, object]:
        return {
            "id": f"msg_{answer.id}",
            "type": "message",
            "role": "assistant",
            "status": self._status(answer) if is_done else "in_progress",
            "content": [_part(answer.text)] if is_done else [],
        }

    def _response(self, answer: SimAnswer, is_done: bool) -> dict[str, object]:
        output = len(answer.words)
        usage = {
            "input_tokens": answer.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.prompt_tokens + output,
        }
        cut = {"reason": "max_output_tokens"} if is_done and answer.is_cut else None
        return {
            "id": f"resp_{answer.id}",
            "object": "response",
            "created_at": 0,
            "status": self._status(answer) if is_done else "in_progress",
            "error": None,
            "incomplete_details": cut,
            "model": answer.model,
            "output": [self._item(answer, is_done=True)] if is_done else [],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage if is_done else None,
        }

    def _status(self, answer: SimAnswer) -> str:
        return "incomplete" if answer.is_cut else "completed"


def _part(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": []}
