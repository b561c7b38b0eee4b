"""What a program written with the OpenAI Python SDK relies on, one function per promise.

Usage: openai_sdk.py MODEL [CASE...]; OPENAI_BASE_URL and OPENAI_API_KEY say where. Prints a line per case and fails if any did.
"""

import json
import signal
import sys
import time
import traceback

import openai
from pydantic import BaseModel

MODEL = sys.argv[1]
CAPITAL = "What is the capital of France? Answer with one word."
# A stream without an end is a failure of its case, not of the whole run.
CASE_SECONDS_MAX = 120
# No retries: a server that needs a second attempt has failed.
client = openai.OpenAI(max_retries=0, timeout=120)


class City(BaseModel):
    name: str
    country: str
    inhabitants: int


# As plain as a model of this size needs: with less, it calls the tool again instead of answering.
CALL_ONCE = "Call get_weather once. When it has answered, tell the user the weather in a sentence."
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def whole():
    response = client.responses.create(model=MODEL, input=CAPITAL, max_output_tokens=32, temperature=0)
    assert response.status == "completed", response
    assert response.model == MODEL, response.model
    assert "Paris" in response.output_text, response.output_text
    usage = response.usage
    assert usage.input_tokens > 0 and usage.output_tokens > 0, usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens, usage


def stored():
    first = client.responses.create(model=MODEL, input=CAPITAL, max_output_tokens=32, temperature=0)
    assert client.responses.retrieve(first.id).output_text == first.output_text
    items = client.responses.input_items.list(first.id).data
    assert [item.type for item in items] == ["message"], items
    second = client.responses.create(
        model=MODEL, previous_response_id=first.id, input="Repeat that word.", max_output_tokens=32, temperature=0
    )
    assert second.previous_response_id == first.id
    assert "Paris" in second.output_text, second.output_text
    client.responses.delete(first.id)
    expect(openai.NotFoundError, lambda: client.responses.retrieve(first.id))


def stream():
    text, numbers, kinds = "", [], []
    with client.responses.stream(model=MODEL, input=CAPITAL, max_output_tokens=32, temperature=0) as events:
        for event in events:
            numbers.append(event.sequence_number)
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                text += event.delta
        final = events.get_final_response()
    assert numbers == list(range(len(numbers))), numbers
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    assert text == final.output_text and "Paris" in text, (text, final.output_text)


def parse():
    response = client.responses.parse(
        model=MODEL, input="Describe Paris as JSON.", text_format=City, max_output_tokens=128, temperature=0
    )
    assert isinstance(response.output_parsed, City), response
    assert "Paris" in response.output_parsed.name, response.output_parsed


def tool():
    settings = {"model": MODEL, "instructions": CALL_ONCE, "max_output_tokens": 64, "temperature": 0}
    settings["tools"] = [{"type": "function", **WEATHER}]
    question = {"role": "user", "content": "What is the weather in Paris?"}
    first = client.responses.create(input=[question], tool_choice="required", **settings)
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert call.name == "get_weather" and "Paris" in json.loads(call.arguments)["city"], call
    answer = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees, sunny"}
    second = client.responses.create(previous_response_id=first.id, input=[answer], **settings)
    assert "21" in second.output_text, second.output_text


def websocket():
    with client.responses.connect() as connection:
        first = turn(connection, input="My code word is cobalt. Say only: noted.", store=False)
        second = turn(connection, input="What is my code word?", previous_response_id=first.id, store=False)
        assert "cobalt" in second.output_text.lower(), second.output_text
        assert second.usage.input_tokens_details.cached_tokens > 0, second.usage
        connection.response.create(model=MODEL, input="Go on.", previous_response_id="resp_missing", store=False)
        error = next(iter(connection))
        assert error.type == "error" and "previous_response_not_found" in error.to_json(), error
        third = turn(connection, input=CAPITAL, store=False)
        assert "Paris" in third.output_text, third.output_text


def turn(connection, **request):
    """One response over the socket, up to its last event."""
    connection.response.create(model=MODEL, max_output_tokens=32, temperature=0, **request)
    text = ""
    for event in connection:
        assert event.type not in ("error", "response.failed", "response.incomplete"), event
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type == "response.completed":
            assert event.response.output_text == text, (event.response.output_text, text)
            return event.response
    raise AssertionError("the socket closed in the middle of a response")


def chat():
    messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": CAPITAL}]
    settings = {"model": MODEL, "messages": messages, "max_tokens": 32, "temperature": 0}
    answer = client.chat.completions.create(**settings)
    choice = answer.choices[0]
    assert "Paris" in choice.message.content and choice.finish_reason == "stop", choice
    text, usage, reasons = "", None, []
    for chunk in client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for part in chunk.choices:
            text += part.delta.content or ""
            reasons.append(part.finish_reason)
    assert text == choice.message.content, (text, choice.message.content)
    assert reasons[-1] == "stop" and reasons.count("stop") == 1, reasons
    assert usage == answer.usage or usage.completion_tokens == answer.usage.completion_tokens, (usage, answer.usage)


def chat_tool():
    messages = [{"role": "system", "content": CALL_ONCE}, {"role": "user", "content": "What is the weather in Paris?"}]
    settings = {"model": MODEL, "max_tokens": 64, "temperature": 0, "tools": [{"type": "function", "function": WEATHER}]}
    choice = client.chat.completions.create(messages=messages, tool_choice="required", **settings).choices[0]
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and "Paris" in json.loads(call.function.arguments)["city"], choice
    messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "21 degrees, sunny"}]
    text = client.chat.completions.create(messages=messages, **settings).choices[0].message.content
    assert "21" in text, text
    with client.chat.completions.stream(messages=messages[:2], tool_choice="required", **settings) as events:
        (streamed,) = events.get_final_completion().choices[0].message.tool_calls
    assert streamed.function.arguments == call.function.arguments, (streamed, call)


def chat_format():
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "Describe Paris as JSON."}],
        response_format=City,
        max_tokens=128,
        temperature=0,
    )
    assert "Paris" in answer.choices[0].message.parsed.name, answer
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Give me the JSON object {\"ok\": true}."}],
        response_format={"type": "json_object"},
        max_tokens=64,
        temperature=0,
    )
    assert isinstance(json.loads(answer.choices[0].message.content), dict), answer


def completions():
    answer = client.completions.create(
        model=MODEL,
        prompt="def add(a, b):\n    return ",
        suffix="\n\nprint(add(1, 2))\n",
        max_tokens=16,
        temperature=0,
    )
    assert answer.choices[0].text.strip().startswith("a + b"), answer


def models():
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


def errors():
    for bad in ({"temperature": "hot"}, {"input": 5}, {"max_output_tokens": -1}, {"tools": [{"name": "untyped"}]}):
        error = expect(openai.BadRequestError, lambda: client.responses.create(**{"model": MODEL, "input": "Hi", **bad}))
        (field,) = bad
        assert field in error.message, (bad, error.message)
    expect(openai.NotFoundError, lambda: client.responses.retrieve("resp_missing"))
    expect(openai.NotFoundError, lambda: client.responses.create(model="no-such-model", input="Hi"))
    chat = client.chat.completions.create
    expect(openai.NotFoundError, lambda: chat(model="no-such-model", messages=[{"role": "user", "content": "Hi"}]))
    for bad in ([], [{"role": "poet", "content": "Hi"}]):
        error = expect(openai.BadRequestError, lambda: chat(model=MODEL, messages=bad))
        assert "messages" in error.message, error.message
    expect(openai.NotFoundError, lambda: client.models.retrieve("no-such-model"))


def key():
    """Only where the server asks for a key: without it nothing but an error, also on the socket."""
    stranger = client.with_options(api_key="wrong")
    expect(openai.AuthenticationError, lambda: stranger.models.list())
    expect(openai.AuthenticationError, lambda: stranger.responses.create(model=MODEL, input="Hi"))
    refused = expect(Exception, lambda: stranger.responses.connect(max_retries=0).enter())
    assert "401" in str(refused), refused
    assert MODEL in [model.id for model in client.models.list()]
    with client.responses.connect() as connection:
        connection.response.create(model=MODEL, input="Hi", max_output_tokens=16)
        assert next(iter(connection)).type == "response.created"


def expect(kind, action):
    """The error that `action` must raise."""
    try:
        answer = action()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got {answer}")


def late(*_):
    raise TimeoutError(f"no end after {CASE_SECONDS_MAX} s")


signal.signal(signal.SIGALRM, late)
CASES = [whole, stored, stream, parse, tool, websocket, chat, chat_tool, chat_format, completions, models, errors]
failed = []
for case in [globals()[name] for name in sys.argv[2:]] or CASES:
    start = time.monotonic()
    signal.alarm(CASE_SECONDS_MAX)
    try:
        case()
        print(f"ok {case.__name__} {time.monotonic() - start:.1f} s", flush=True)
    except Exception:
        failed.append(case.__name__)
        print(f"FAILED {case.__name__}\n{traceback.format_exc(limit=-3)}", flush=True)
sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
