"""What programs written with other libraries rely on, one function per promise.

Usage: more_clients.py MODEL EMBEDDER [CASE...]; FLINT_URL is the server without a path. Prints a line per case and fails if
any did.
"""

import os
import signal
import sys
import traceback

import anthropic
import instructor
import ollama
import openai
import outlines
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import OpenAIEmbeddings
from pydantic import BaseModel

MODEL, EMBEDDER = sys.argv[1:3]
URL = os.environ["FLINT_URL"]
CASE_SECONDS_MAX = 180
openai_client = openai.OpenAI(base_url=f"{URL}/v1", api_key="x", max_retries=0, timeout=120)
PERSON = "Anna is 31 years old. Extract the person."
CITY_SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Person(BaseModel):
    name: str
    age: int


def check_person(person):
    assert isinstance(person, Person) and (person.name, person.age) == ("Anna", 31), person


def instructor_in_every_mode():
    for mode in [instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA, instructor.Mode.MD_JSON]:
        client = instructor.from_openai(openai_client, mode=mode)
        check_person(client.chat.completions.create(
            model=MODEL, response_model=Person, max_retries=0, messages=[{"role": "user", "content": PERSON}]))
    for mode in [instructor.Mode.RESPONSES_TOOLS, instructor.Mode.RESPONSES_TOOLS_WITH_INBUILT_TOOLS]:
        client = instructor.from_openai(openai_client, mode=mode)
        check_person(client.responses.create(model=MODEL, response_model=Person, max_retries=0, input=PERSON))


def anthropic_formats_and_limits():
    client = anthropic.Anthropic(base_url=URL, api_key="x", max_retries=0)
    messages = [{"role": "user", "content": "Name the capital of Italy."}]
    config = {"format": {"type": "json_schema", "schema": CITY_SCHEMA}}
    answer = client.messages.create(model=MODEL, max_tokens=64, messages=messages, output_config=config)
    assert answer.content[0].text.replace(" ", "").replace("\n", "") == '{"city":"Rome"}', answer
    warm = client.messages.create(model=MODEL, max_tokens=0, messages=messages)
    assert warm.content == [] and warm.stop_reason == "max_tokens", warm
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    try:
        client.messages.create(model=MODEL, max_tokens=8, messages=[{"role": "user", "content": [image]}])
    except anthropic.BadRequestError as error:
        assert "reads only text" in str(error), error
    else:
        raise AssertionError("a picture was taken")


def outlines_as_for_vllm():
    model = outlines.from_vllm(openai_client, MODEL)
    assert model("Is the sky blue? Answer Yes or No.", outlines.types.Choice(["Yes", "No"])) in ("Yes", "No")
    number = model("How old is Anna, who was born 31 years ago?", outlines.types.Regex("[0-9]{2}"))
    assert len(number) == 2 and number.isdigit(), number
    check_person(Person.model_validate_json(model(PERSON, Person)))


def ollama_client():
    client = ollama.Client(host=URL)
    listed = {model.model for model in client.list().models}
    assert MODEL in listed and EMBEDDER in listed, listed
    shown = client.show(MODEL)
    assert "completion" in shown.capabilities and any(key.endswith("context_length") for key in shown.modelinfo), shown
    assert client.show(EMBEDDER).capabilities == ["embedding"]
    messages = [{"role": "user", "content": "What is the capital of France? Answer with one word."}]
    options = {"temperature": 0, "num_predict": 16}
    whole = client.chat(model=MODEL, messages=messages, options=options)
    assert "Paris" in whole.message.content and whole.done and whole.eval_count > 0, whole
    streamed = list(client.chat(model=MODEL, messages=messages, options=options, stream=True))
    assert "".join(part.message.content for part in streamed) == whole.message.content and streamed[-1].done
    formatted = client.chat(model=MODEL, messages=messages, format=CITY_SCHEMA, options=options)
    assert '"Paris"' in formatted.message.content, formatted
    called = client.chat(model=MODEL, tools=[WEATHER], messages=[{"role": "user", "content": "What is the weather in Oslo?"}])
    assert called.message.tool_calls[0].function.name == "get_weather", called
    assert called.message.tool_calls[0].function.arguments == {"city": "Oslo"}, called
    assert "return" in client.generate(model=MODEL, prompt="def add(a, b):\n    ", suffix="\n", options=options).response
    assert client.ps().models, "nothing is loaded"
    one = client.embed(model=EMBEDDER, input="hello world")
    two = client.embed(model=EMBEDDER, input=["hello world", "the cart total"])
    assert one.embeddings[0] == two.embeddings[0] != two.embeddings[1]
    assert list(client.embeddings(model=EMBEDDER, prompt="hello world").embedding) == list(one.embeddings[0])
    try:
        client.chat(model="nope", messages=messages)
    except ollama.ResponseError as error:
        assert error.status_code == 404 and "nope" in error.error, error
    else:
        raise AssertionError("there is a model that is not there")


def langchain_embeddings():
    texts = ["hello world", "the cart total", "hello world"]
    ours = OllamaEmbeddings(model=EMBEDDER, base_url=URL).embed_documents(texts)
    assert ours[0] == ours[2] != ours[1]
    theirs = OpenAIEmbeddings(
        model=EMBEDDER, base_url=f"{URL}/v1", api_key="x", check_embedding_ctx_length=False).embed_documents(texts)
    assert all(abs(a - b) < 1e-6 for left, right in zip(ours, theirs) for a, b in zip(left, right))
    assert abs(sum(number * number for number in ours[0]) - 1) < 1e-4
    answer = ChatOllama(model=MODEL, base_url=URL, temperature=0).invoke("What is the capital of France? One word.")
    assert "Paris" in answer.content, answer


def openai_embeddings():
    made = openai_client.embeddings.create(model=EMBEDDER, input=["hello world", "the cart total"])
    assert made.data[0].index == 0 and len(made.data[0].embedding) == len(made.data[1].embedding), made
    assert made.usage.prompt_tokens > 0
    plain = openai_client.embeddings.create(model=EMBEDDER, input="hello world", encoding_format="float")
    assert all(abs(a - b) < 1e-6 for a, b in zip(plain.data[0].embedding, made.data[0].embedding))
    counted = openai_client.responses.input_tokens.count(model=MODEL, input="hello")
    assert counted.input_tokens > 0, counted


CASES = [
    instructor_in_every_mode, anthropic_formats_and_limits, outlines_as_for_vllm, ollama_client, langchain_embeddings,
    openai_embeddings,
]


def too_long(*_):
    raise TimeoutError(f"not done after {CASE_SECONDS_MAX} s")


def main():
    signal.signal(signal.SIGALRM, too_long)
    failed = 0
    for case in CASES:
        if sys.argv[3:] and case.__name__ not in sys.argv[3:]:
            continue
        signal.alarm(CASE_SECONDS_MAX)
        try:
            case()
            print("ok", case.__name__, flush=True)
        except Exception:
            failed += 1
            print("FAILED", case.__name__, traceback.format_exc(), sep="\n", flush=True)
        signal.alarm(0)
    sys.exit(failed > 0)


main()
